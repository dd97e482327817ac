"""Cells that need a package: run where it is; elsewhere their stored outputs are shown, and it is said."""

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tinydist.visuals import stored_outputs


@pytest.fixture
def cell(tmp_path, monkeypatch):
    """cell(package, body) is a cell ``%%package`` of a notebook that has stored an output for the body ``1 + 1``."""
    shell = InteractiveShell()
    monkeypatch.setattr(stored_outputs, "get_ipython", lambda: shell)
    monkeypatch.setattr(shell, "run_cell", lambda source: print("run:", source))

    def run(package, body):
        outputs = [
            new_output("stream", name="stdout", text="before\n"),
            new_output("stream", name="stderr", text="a warning\n"),
            new_output("execute_result", data={"text/plain": "2"}, execution_count=1),
        ]
        notebook = new_notebook(cells=[new_code_cell(f"%%{package}\n1 + 1", outputs=outputs)])
        nbformat.write(notebook, tmp_path / "a.ipynb")
        stored_outputs.cells_that_need(package, tmp_path / "a.ipynb")
        shell.run_cell_magic(package, "", body)

    return run


def test_where_the_package_is_the_cell_runs(cell, capsys):
    cell("torch", "1 + 1")
    assert capsys.readouterr() == ("run: 1 + 1\n", "")


def test_where_it_is_not_the_stored_outputs_are_shown_and_it_is_said(cell, capsys, monkeypatch):
    shown = []
    monkeypatch.setattr(stored_outputs, "display", lambda data, **options: shown.append(data))
    cell("absent_package", "1 + 1\n")
    said = "Not run: absent_package is not installed. The output stored in the notebook:\n"
    assert capsys.readouterr() == ("before\n", said)
    assert shown == [{"text/plain": "2"}]


def test_a_cell_that_was_changed_has_nothing_stored(cell, capsys):
    cell("absent_package", "1 + 2")
    said = "Not run: absent_package is not installed. The notebook has stored no output.\n"
    assert capsys.readouterr() == ("", said)
