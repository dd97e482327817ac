"""What the root conftest.py adds to nbval: cells are the same where a reader would say so, and only there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

CONFTEST = Path(__file__).parent.parent / "conftest.py"


def printed(text):
    return new_output("stream", text=text)


def value(data):
    return new_output("execute_result", data=data, execution_count=1)


def figure(data):
    return new_output("display_data", data=data)


VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET = "VBox(children=(Image(value=b'png'),))"


# Each with what its cell showed on another day. First what nbval alone takes for a difference.
NBVAL_ALONE_FAILS = {
    "warning": ("import sys; print('a warning', file=sys.stderr)", []),
    "semicolon": ("[1, 2];", []),
    "pytest": ("import os; print('PYTEST_CURRENT_TEST' in os.environ)", [printed("False\n")]),
    "figure": (
        "import matplotlib.pyplot as plt; plt.plot([1]);",
        [figure({"text/plain": "<Figure size 640x480 with 1 Axes>", "image/png": "aa"})],
    ),
    "address": ("print(object())", [printed("<object object at 0x7f01234567a0>\n")]),
    "progress line": ("import os; print('TINYDIST_QUIET' in os.environ)", [printed("True\n")]),
    "path": ("import tempfile; print(tempfile.mkdtemp(), 1)", [printed("/var/folders/b_/a9/T/tmpxyz 1\n")]),
    "tolerance": ("print('step 2', 3.14159, 2e-05)", [printed("step 2 3.14157 2e-05\n")], "within-1e-5"),
}
SAME = NBVAL_ALONE_FAILS | {
    "print": ("print('now')", [printed("now\n")]),
    "widget": (
        "import ipywidgets; ipywidgets.VBox([ipywidgets.Image(value=b'png')])",
        [value({VIEW: {"model_id": 1}, "image/png": "aa", "text/plain": WIDGET})],
    ),
}
DIFFERENT = {
    "other value": ("1 + 1", [value({"text/plain": "3"})]),
    "other print": ("print('now')", [printed("then\n")]),
    "print was not there": ("print('now')", []),
    "value is gone": ("2;", [value({"text/plain": "2"})]),
    "short number": ("print(hex(255))", [printed("0xfe\n")]),
    "not within the tolerance": ("print(3.14159, 1.0)", [printed("3.14150 1.0\n")], "within-1e-5"),
    "one number more": ("print(1.5, 2.5)", [printed("1.5\n")], "within-1e-5"),
    "one number fewer": ("print(1.5)", [printed("1.5 2.5\n")], "within-1e-5"),
    "other words": ("print('loss', 1.5)", [printed("norm 1.5\n")], "within-1e-5"),
    "a count": ("print(1001)", [printed("1000\n")], "within-1e-5"),
}


def same_to_nbval(folder, cells):
    """The names of the cells that pass, run in one notebook."""
    code_cells = [
        new_code_cell(code, execution_count=1, outputs=outputs, metadata={"tags": tags})
        for code, outputs, *tags in cells.values()
    ]
    nbformat.write(new_notebook(cells=code_cells), folder / "scratch.ipynb")
    command = [sys.executable, "-m", "pytest", "-v", "--nbval", "--nbval-current-env"]
    environment = os.environ | {"MPLBACKEND": "agg"}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert f" {len(cells)} items" in run.stdout, run.stdout + run.stderr
    passed = {int(number) for number in re.findall(r"::Cell (\d+) PASSED", run.stdout)}
    return [name for number, name in enumerate(cells) if number in passed]


def test_same_and_different(tmp_path):
    shutil.copy(CONFTEST, tmp_path)
    assert same_to_nbval(tmp_path, SAME | DIFFERENT) == list(SAME)


@pytest.mark.exhaustive
def test_each_addition_is_needed(tmp_path):
    """When this fails, nbval has learned something, and conftest.py may forget it."""
    assert same_to_nbval(tmp_path, NBVAL_ALONE_FAILS) == []
