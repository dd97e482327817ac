"""Explorers where no kernel runs: pictures for the positions of their controls, drawn when the site is built.

`python site/explorers.py` runs each notebook that has explorers up to the last of them, unless it was done since
something changed. There each explorer gives, in place of what it shows, its grid:

    controls    of each: name, labels of its positions, which of them it has at first, whether it is a slider
    shown       for each combination, the last control's positions running fastest: [picture, what it shows, text]
    pictures    each once: PNG in base64, width and height on the page

They are kept in build/explorers, a file for each notebook.
"""

import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product, repeat
from math import prod
from pathlib import Path

import ipywidgets
import nbformat
import numpy as np
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from tinydist.visuals.explorer import NOTHING, drawn

SITE = Path(__file__).parent
GRIDS = SITE.parent / "build" / "explorers"
MOST = 100  # pictures of an explorer
SLIDERS = ipywidgets.IntSlider, ipywidgets.FloatSlider, ipywidgets.SelectionSlider
WIDGET, GRID = "application/vnd.jupyter.widget-view+json", "application/json"
GIVE_GRIDS = f"""
import sys
sys.path.append({str(SITE)!r})
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
    slider = isinstance(control, SLIDERS)
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
    """Of each list so many, evenly, that there are ``most`` combinations; those with the numbers ``kept`` are there."""
    counts = [len(each) for each in lists]
    while prod(counts) > most:
        counts[counts.index(max(counts))] -= 1
    return [[each[n] for n in some(len(each), count, keep)] for each, count, keep in zip(lists, counts, kept)]


def some(length, count, keep):
    numbers = np.linspace(0, length - 1, count).round().astype(int)
    numbers[abs(numbers - keep).argmin()] = keep
    return numbers.tolist()


def is_explorer(output):
    return WIDGET in output.get("data", {})


def run(notebook, folder):
    """The grids of all explorers of a notebook, whose last cell has one."""
    notebook.cells.insert(0, new_code_cell(GIVE_GRIDS))
    NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output.data[GRID] for output in outputs if GRID in output.get("data", {})]


def up_to_the_last(notebook):
    """Without the cells after the last explorer."""
    numbers = [n for n, cell in enumerate(notebook.cells) if any(map(is_explorer, cell.get("outputs", ())))]
    notebook.cells[max(numbers, default=-1) + 1 :] = []
    return notebook


def keep(path, newest):
    """Write the grids of the notebook at ``path``, if they are older than it or than ``newest``."""
    to = GRIDS / path.relative_to(SITE).with_suffix(".json")
    notebook = up_to_the_last(nbformat.read(path, as_version=4))
    if notebook.cells and not (to.exists() and to.stat().st_mtime > max(path.stat().st_mtime, newest)):
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(json.dumps(run(notebook, path.parent)))
    return bool(notebook.cells)


def main():
    os.environ |= {"TINYDIST_QUIET": "1", "TINYDIST_PROGRESS": os.path.join(tempfile.mkdtemp(), "progress.json")}
    os.environ["OMP_NUM_THREADS"] = "1"  # kernels share the cores
    newest = max(path.stat().st_mtime for path in [Path(__file__), *(SITE.parent / "tinydist").rglob("*.py")])
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        kept = threads.map(keep, notebooks(), repeat(newest))
        print(f"the grids of {sum(kept)} notebooks")


def notebooks():
    return [SITE / "index.ipynb", *sorted((SITE / "notebooks").glob("*.ipynb"))]


if __name__ == "__main__":
    main()
