"""The notebooks of exercises and solutions are made from the exercises' files."""

import nbformat
import pytest
from lab.shipped import ROOT
from lab.toy_course import toy as toy

from tinydist.syllabus import notebooks
from tinydist.syllabus.registry import chapters, find


def cells(path):
    return {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}


@pytest.fixture
def begun(toy, monkeypatch):
    """The notebook of exercises as it is written first, without running it."""
    monkeypatch.setattr(notebooks, "run", lambda notebook, folder: notebook)
    notebooks.main([])
    return notebooks.path_of("98_toys", solved=False)


def test_both_are_the_same_but_for_the_blank(begun):
    stub, solved = cells(begun), cells(notebooks.path_of("98_toys", solved=True))
    assert list(solved) == ["introduction", "imports", "average-task", "average", "average-check"]
    assert list(stub) == [*solved, "average-hint"]
    assert [name for name in solved if stub[name].source != solved[name].source] == ["average"]
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


def test_a_check_needs_no_other_cell_and_whoever_runs_all_cells_gets_no_hint(begun):
    found = cells(begun)
    assert found["average-check"].source == "from tinydist.lab import check, hint\n\ncheck(average)"
    assert found["average-hint"].source.startswith("# hint(average)  # ")


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
    folder = ROOT / ("solutions" if solved else "exercises")
    new = {cell.id: cell.source for cell in notebooks.made(chapter, solved).cells}
    assert {name: cell.source for name, cell in cells(folder / f"{chapter}.ipynb").items()} == new


def test_an_exercise_is_found_by_its_name(toy):
    assert find("average") is toy


def test_without_the_exercises(monkeypatch, tmp_path):
    monkeypatch.setenv("TINYDIST_EXERCISES", str(tmp_path))
    with pytest.raises(LookupError, match="there is no exercise 'average'"):
        find("average")
