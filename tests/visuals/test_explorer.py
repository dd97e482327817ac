"""A control that is moved changes the picture, which a notebook keeps; and a notebook of all pictures passes nbval."""

import base64
import os
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import ipywidgets
import matplotlib.pyplot as plt
import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image
from visuals.some_runs import run_of

from tinydist import visuals
from tinydist.visuals.figure import size_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nothing_is_left_open():
    yield
    assert plt.get_fignums() == []


def timeline_until(end):
    return visuals.timeline(run_of("star"), until=end * 1e-6)


def test_a_control_changes_the_image_and_the_line():
    explorer = visuals.Explorer(timeline_until, end=(20, 140))
    before, line = explorer.image.value, explorer.line.value
    assert "80.0 us: compute" in line
    explorer.controls["end"].value = 30
    assert explorer.image.value != before and "30.0 us: compute" in explorer.line.value
    explorer.controls["end"].value = 80
    assert (explorer.image.value, explorer.line.value) == (before, line)


def test_the_mimebundle_has_the_picture_and_the_line():
    explorer = visuals.Explorer(timeline_until, end=ipywidgets.IntSlider(40, 20, 140, description="until (us)"))
    bundle, metadata = explorer._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]) == explorer.image.value
    assert bundle["image/png"].startswith("iVBOR")
    assert bundle["text/plain"].startswith("Explorer(end=40)\n4 ranks, 40.0 us: compute ")
    figure = timeline_until(40)
    plt.close(figure)
    assert metadata["image/png"] == size_of(figure)
    assert explorer.controls["end"].description == "until (us)"


def test_the_image_is_as_large_as_the_saved_one():
    """A box stretches what is in it to its own width, unless that stands at the start."""
    layout = visuals.Explorer(timeline_until, end=(20, 140)).image.layout
    assert layout.align_self == "flex-start" and layout.max_width == "100%" and layout.width == "720px"
    assert layout.margin == "0"  # on a narrow page, all of its width and two margins would be too much


def test_a_figure_of_the_reader_is_drawn_in_the_style():
    def line(slope):
        plt.plot([0, slope])

    image = Image.open(BytesIO(visuals.Explorer(line, slope=(1, 3)).image.value))
    assert image.size == (1440, 500)


def test_a_figure_may_be_left_to_pyplot():
    def line(slope):
        plt.plot([0, slope])

    plt.plot([1, 2])  # of the cell, not of the explorer
    explorer = visuals.Explorer(line, slope=(1, 3))
    assert bytes(explorer.image.value).startswith(b"\x89PNG") and len(plt.gca().lines) == 1
    plt.close()


def test_text_alone_shows_no_image():
    explorer = visuals.Explorer(lambda word: print(word, "<b>"), word=["ring", "star"])
    assert explorer.line.value == "<pre>ring &lt;b&gt;</pre>"
    assert explorer.image.layout.display == "none"
    bundle, metadata = explorer._repr_mimebundle_()
    assert not metadata and set(bundle) == {"text/plain", "application/vnd.jupyter.widget-view+json"}


def test_an_error_after_a_move_is_told_under_the_picture():
    explorer = visuals.Explorer(lambda n: print(1 / n), n=ipywidgets.IntSlider(1, 0, 2))
    explorer.controls["n"].value = 0
    assert explorer.line.value == "<pre>ZeroDivisionError: division by zero</pre>"
    explorer.controls["n"].value = 2
    assert explorer.line.value == "<pre>0.5</pre>"


def test_an_error_takes_the_picture_of_other_values_away():
    explorer = visuals.Explorer(lambda end: timeline_until(20 / end), end=ipywidgets.IntSlider(1, 0, 2))
    before = explorer.image.value
    explorer.controls["end"].value = 0
    assert explorer.image.value == b"" and explorer.image.layout.display == "none"
    assert repr(explorer) == "Explorer(end=0)\nZeroDivisionError: division by zero"
    assert "image/png" not in explorer._repr_mimebundle_()[0]
    explorer.controls["end"].value = 1
    assert explorer.image.value == before and explorer.image.layout.display is None


def test_an_error_at_first_is_an_error():
    with pytest.raises(ZeroDivisionError):
        visuals.Explorer(lambda n: 1 / n, n=ipywidgets.IntSlider(0))


def test_what_is_no_control_is_named():
    with pytest.raises(ValueError, match="n must be a widget, or a range or choices that make one, got None"):
        visuals.Explorer(print, n=None)


CELLS = [
    "import torch, torch.distributed as dist, tinydist\nfrom tinydist import visuals\n"
    "def add(numel=1000):\n    dist.all_reduce(torch.ones(numel))",
    "run = tinydist.launch(add, 4)\nrun",
    "visuals.timeline(run)",
    "visuals.memory(run);",
    "picture = visuals.traffic(run)",
    "picture",
    "visuals.cluster(run)",
    "def draw(ranks, numel):\n    return visuals.timeline(tinydist.launch(add, ranks, numel))\n"
    "explorer = visuals.Explorer(draw, ranks=(2, 8), numel=[1000, 100000])\nexplorer",
    "explorer.controls['ranks'].value = 3\nexplorer",
    "tinydist.launch(dist.get_rank, 2)",
]
PICTURES = [0, 1, 1, 1, 1, 1, 1, 1, 1, 0]  # in each cell


@pytest.mark.exhaustive
def test_a_notebook_shows_each_picture_once_and_passes_nbval(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, kernel_name="python3").execute(cwd=ROOT, env=environment)
    found = [sum("image/png" in output.get("data", {}) for output in cell.outputs) for cell in notebook.cells]
    assert found == PICTURES
    notebook.metadata.pop("widgets", None)
    nbformat.write(notebook, tmp_path / "scratch.ipynb")
    shutil.copy(ROOT / "conftest.py", tmp_path)
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "scratch.ipynb"]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert f"{len(CELLS)} passed" in run.stdout, run.stdout + run.stderr
