"""Explorers where no kernel runs: their pictures for the positions of their controls, drawn when the site is built.

    python site/explorers.py notebooks/02_collectives.ipynb build/explorers/02_collectives.json

runs the notebook up to its last explorer, which all give, in place of what they show, a grid:

    controls    of each: name, labels of its positions, which of them it has at first, whether it is a slider
    shown       for each combination, the last control's positions running fastest: [picture, what it says, text]
    pictures    each once: PNG in base64, width and height on the page
"""

import json
import os
import sys
import tempfile
from itertools import product
from math import prod
from pathlib import Path

import ipywidgets
import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from tinydist.visuals.explorer import NOTHING, drawn

MOST = 100  # pictures of an explorer
WIDGET, GRID = "application/vnd.jupyter.widget-view+json", "application/json"
GIVE_GRIDS = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
import explorers, tinydist.visuals
tinydist.visuals.Explorer._repr_mimebundle_ = explorers.in_place
"""


def in_place(explorer, **_):
    """The mimebundle of an explorer that gives its grid."""
    return {GRID: grid(explorer)}


def grid(explorer):
    controls = list(explorer.controls.values())
    positions = thinned([positions_of(each) for each in controls], [chosen(each) for each in controls])
    pictures, shown = {}, []
    for combination in product(*positions):
        values = {name: value for name, (_, value) in zip(explorer.controls, combination)}
        (data, metadata), text = drawn_or_said(explorer.draw, values)
        size = metadata.get("image/png", {})
        picture = data and (data["image/png"], size["width"], size["height"])
        number = pictures.setdefault(picture, len(pictures)) if data else None
        shown.append([number, size.get("alt", ""), text])
    described = [described_as(each, labels) for each, labels in zip(controls, positions)]
    return {"controls": described, "shown": shown, "pictures": list(pictures)}


def drawn_or_said(draw, values):
    try:
        return drawn(draw, values)
    except Exception as error:  # as an explorer says it
        return NOTHING, f"{type(error).__name__}: {error}"


def described_as(control, positions):
    first = next(number for number, (_, value) in enumerate(positions) if value == control.value)
    slider = isinstance(control, ipywidgets.widgets.widget_int._IntRange | ipywidgets.SelectionSlider)
    return {"name": control.description, "labels": [label for label, _ in positions], "first": first, "slider": slider}


def positions_of(control):
    """Label and value of each position; of a control that takes any number, the one that it has."""
    if hasattr(control, "options"):
        return list(control._options_full)
    if isinstance(control, ipywidgets.Checkbox):
        return [("no", False), ("yes", True)]
    if hasattr(control, "step") and hasattr(control, "max"):
        count = round((control.max - control.min) / control.step)
        values = [control.min + number * control.step for number in range(count + 1)]
        return [(f"{value:g}", value) for value in values]
    return [(str(control.value), control.value)]


def chosen(control):
    return next(number for number, (_, value) in enumerate(positions_of(control)) if value == control.value)


def thinned(lists, kept, most=MOST):
    """Of each list so many, evenly, that there are ``most`` combinations; the first, the last and the kept are there."""
    counts = [len(each) for each in lists]
    while prod(counts) > most:
        counts[counts.index(max(counts))] -= 1
    return [[each[n] for n in some(len(each), count, keep)] for each, count, keep in zip(lists, counts, kept)]


def some(length, count, keep):
    if count == length:
        return range(length)
    numbers = [round(n * (length - 1) / (count - 1)) for n in range(count)]
    inner = range(1, count - 1) if 0 < keep < length - 1 else range(count)
    nearest = min(inner, key=lambda n: abs(numbers[n] - keep))
    return numbers[:nearest] + [keep] + numbers[nearest + 1 :]


def is_explorer(output):
    return WIDGET in output.get("data", {})


def run(path):
    """The grids of all explorers of a notebook."""
    notebook = nbformat.read(path, as_version=4)
    last = max((n for n, cell in enumerate(notebook.cells) if any(map(is_explorer, cell.get("outputs", ())))), default=-1)
    if last < 0:
        return []
    notebook.cells[last + 1 :] = []
    notebook.cells.insert(0, new_code_cell(GIVE_GRIDS))
    quiet = {"TINYDIST_QUIET": "1", "TINYDIST_PROGRESS": os.path.join(tempfile.mkdtemp(), "progress.json")}
    os.environ.update(quiet)
    NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(path.parent)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output.data[GRID] for output in outputs if GRID in output.get("data", {})]


if __name__ == "__main__":
    notebook, to = map(Path, sys.argv[1:])
    to.write_text(json.dumps(run(notebook)))
