"""The notebooks of exercises and solutions are made from the exercises' files, and a reader's cells stay his."""

import nbformat
import pytest
from lab.shipped import shipped
from lab.toy_course import toy as toy
from nbformat.v4 import new_code_cell, new_markdown_cell

from tinydist.lab import notebooks
from tinydist.lab.find import chapters, find

MINE = "def average(tensor):\n    return mine"


def cells(path):
    return {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}


@pytest.fixture
def begun(toy, monkeypatch):
    """The notebook of exercises as it is written first, without running it."""
    monkeypatch.setattr(notebooks, "run", lambda notebook, folder: notebook)
    notebooks.main([])
    return notebooks.path_of("98_toys", solved=False)


def change(path, edit):
    notebook = nbformat.read(path, as_version=4)
    edit(notebook)
    notebooks.save(path, notebook)


def answered(notebook):
    cell = next(cell for cell in notebook.cells if cell.id == "average")
    cell.source, cell.outputs = MINE, []


def test_both_are_the_same_but_for_the_blank(begun):
    stub, solved = cells(begun), cells(notebooks.path_of("98_toys", solved=True))
    assert list(stub) == list(solved) == ["introduction", "imports", "average-task", "average", "average-check"]
    assert [name for name in stub if stub[name].source != solved[name].source] == ["average"]
    assert "    # Sum over all ranks, and divide.\n    raise NotImplementedError" in stub["average"].source
    assert "total /= p" in solved["average"].source


def test_the_task_says_what_is_checked(begun):
    text = cells(begun)["average-task"].source
    assert text.startswith(
        "## 1. Average\n\n5 minutes, difficulty 1 of 5.\n\nReturn the mean of `tensor` over all ranks;"
    )
    assert text.endswith("| checked | target |\n|---|---|\n| values | the mean of all ranks' tensors, in a new one |\n"
                         "| own work | all_reduce alone |\n| bytes | 2 (p-1)/p n |\n"
                         "| memory | one tensor besides the argument |\n"
                         "| waits | whatever is started is waited for |")  # fmt: skip


def test_an_answer_stays(begun, capsys):
    change(begun, answered)
    notebooks.main([])
    assert cells(begun)["average"].source == MINE
    assert "98_toys.ipynb: average is yours, and kept" in capsys.readouterr().out


def test_a_cell_of_the_readers_stays_where_it_was(begun):
    change(begun, lambda notebook: notebook.cells.insert(2, new_code_cell("1 + 1", id="mine")))
    notebooks.main([])
    assert list(cells(begun))[:4] == ["introduction", "imports", "mine", "average-task"]


def test_what_he_has_not_changed_becomes_new(begun, toy, monkeypatch):
    change(begun, answered)
    monkeypatch.setattr(toy, "title", "Mean")
    notebooks.main([])
    assert cells(begun)["average-task"].source.startswith("## 1. Mean") and cells(begun)["average"].source == MINE


def test_one_that_remembers_nothing_of_what_was_written(begun):
    """All of its code that differs is the reader's; its texts are not."""

    def earlier(notebook):
        answered(notebook)
        del notebook.metadata[notebooks.WRITTEN]
        notebook.cells[0].source = "# An earlier text"
        notebook.cells.append(new_code_cell("1 + 1", id="mine"))
        notebook.cells.append(new_markdown_cell("Of an earlier edition", id="gone"))

    change(begun, earlier)
    notebooks.main([])
    found = cells(begun)
    assert found["average"].source == MINE and found["introduction"].source == "# Exercises: averages"
    assert "mine" in found and "gone" not in found


def test_it_runs_the_notebooks(toy, tmp_path, monkeypatch):
    """In a kernel of their own: the stub is told that it has not begun, the solution passes. Nothing counts as done."""
    monkeypatch.setenv("TINYDIST_PROGRESS", str(tmp_path / "progress.json"))
    notebooks.main([])
    stub, solved = (cells(notebooks.path_of("98_toys", solved)) for solved in (False, True))
    assert "average: not yet" in stub["average-check"].outputs[0]["data"]["text/plain"]
    assert "average: passed" in solved["average-check"].outputs[0]["data"]["text/plain"]
    assert not (tmp_path / "progress.json").exists()


@pytest.mark.parametrize("solved", [False, True], ids=["exercises", "solutions"])
@pytest.mark.parametrize("chapter", chapters())
def test_those_of_the_course_are_current(chapter, solved):
    """``make exercises`` writes them."""
    folder = shipped("solutions" if solved else "exercises")
    new = {cell.id: cell.source for cell in notebooks.made(chapter, solved).cells}
    assert {name: cell.source for name, cell in cells(folder / f"{chapter}.ipynb").items()} == new


def test_an_exercise_is_found_by_its_name(toy):
    assert find("average") is toy


def test_without_the_exercises(monkeypatch, tmp_path):
    monkeypatch.setenv("TINYDIST_EXERCISES", str(tmp_path))
    with pytest.raises(LookupError, match="there is no exercise 'average'"):
        find("average")
