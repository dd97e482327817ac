"""The command line, as a reader uses it: on a folder of exercises of his own."""

import shutil

import nbformat
import pytest
from lab.shipped import ROOT, shipped

from tinydist.__main__ import main
from tinydist.lab import progress
from tinydist.lab.exercise import CATALOGUE

NAME = "ring_reduce_scatter"
WRONG = f"""%matplotlib inline
def {NAME}(tensor):
    return tensor.foo()
check({NAME})
"""


@pytest.fixture(autouse=True)
def reader(monkeypatch, tmp_path):
    monkeypatch.delenv("TINYDIST_PROGRESS", raising=False)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(shipped(), tmp_path / "exercises")
    return tmp_path / "exercises" / f"{CATALOGUE[NAME].chapter}.ipynb"


def write(path, name, source):
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if name in cell.metadata.get("tags", [])]
    cell.source = source
    nbformat.write(notebook, path)


def solution():
    cells = nbformat.read(ROOT / "solutions" / f"{CATALOGUE[NAME].chapter}.ipynb", as_version=4).cells
    return next(cell.source for cell in cells if NAME in cell.metadata.get("tags", []))


def run(capsys, *arguments):
    status = main(list(arguments))
    return status, capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["list"]])
def test_list(capsys, arguments):
    progress.note("tree_broadcast", passed=True, tries=3)
    status, said = run(capsys, *arguments)
    lines = said.splitlines()
    assert status == 0 and lines[0] == "02_collectives"
    assert lines[1] == "  done tree_broadcast          20 min  **     Broadcast along a tree (3 tries)"
    assert lines[2].startswith(f"  -    {NAME}")
    there = [name for name, each in CATALOGUE.items() if (shipped() / f"{each.chapter}.ipynb").exists()]
    assert lines[-1] == f"1 of {len(there)} done. Next: {NAME}."


def test_a_chapter_whose_notebook_is_not_there_is_not_listed(capsys, reader, monkeypatch):
    for notebook in reader.parent.glob("*.ipynb"):
        if notebook != reader:
            notebook.unlink()
    names = [name for name, exercise in CATALOGUE.items() if exercise.chapter == reader.stem]
    for name in names:
        progress.note(name, passed=True)
    said = run(capsys)[1]
    titles = [line for line in said.splitlines() if line[0] != " "]
    assert titles == [reader.stem, f"{len(names)} of {len(names)} done. All are done."]
    monkeypatch.chdir("/")  # no folder at all
    assert all(exercise.chapter in run(capsys)[1] for exercise in CATALOGUE.values())


def test_check_of_a_chapter(capsys, reader):
    names = [name for name, exercise in CATALOGUE.items() if exercise.chapter == reader.stem]
    write(reader, NAME, solution())
    status, said = run(capsys, "check", reader.stem)
    assert status == 1 and [name for name in names if f"{name}: not yet" in said] == [n for n in names if n != NAME]
    assert f"{NAME}: passed" in said
    shutil.copy(ROOT / "solutions" / reader.name, reader)
    status, said = run(capsys, "check", reader.stem)
    assert status == 0 and [said.count(f"{name}: passed") for name in names] == [1] * len(names)


def test_check_of_an_answer_and_its_exit_status(capsys, reader):
    assert run(capsys, "check", NAME) == (1, f"{NAME}: not yet\n")
    write(reader, NAME, WRONG)
    status, said = run(capsys, "check", NAME)
    assert status == 1 and f"hint: python -m tinydist hint {NAME}" in said
    assert "AttributeError: 'Tensor' object has no attribute 'foo'\nrank 0, at exercises/02_collectives.ipynb" in said
    assert f"line 3, in {NAME}: return tensor.foo()" in said
    assert said.count(f"{NAME}: wrong") == 1  # the check in the cell was left out
    write(reader, NAME, solution())
    status, said = run(capsys, "check", NAME)
    assert status == 0 and said.startswith(f"{NAME}: passed") and "Next: ring_all_reduce" in said
    assert progress.of(NAME) == {"passed": True, "tries": 2, "hints": 0}


def test_hint(capsys):
    assert run(capsys, "hint", NAME)[1].startswith("Hint 1 of ")
    assert run(capsys, "hint", NAME)[1].startswith("Hint 2 of ")


def test_reset(capsys, reader):
    before = nbformat.read(reader, as_version=4)
    write(reader, NAME, WRONG)
    run(capsys, "check", NAME)
    status, said = run(capsys, "reset", NAME)
    assert status == 0 and WRONG in said
    after = nbformat.read(reader, as_version=4)
    assert [cell.source for cell in after.cells] == [cell.source for cell in before.cells]
    assert after.metadata == before.metadata
    assert reader.read_text(encoding="utf-8") == nbformat.writes(after) + "\n"  # as JupyterLab writes it
    assert progress.load() == {}


def test_what_there_is_not(capsys, reader, monkeypatch):
    for command in ("check", "hint", "reset"):
        status, said = run(capsys, command, "ring_reduce_scater")
        assert status == 1 and f"Did you mean {NAME}? There are: tree_broadcast, " in said
    write(reader, NAME, "x = 1")
    status, said = run(capsys, "check", NAME)
    assert status == 1 and f"does not define {NAME}: `python -m tinydist reset {NAME}` puts its stub back" in said
    reader.unlink()
    assert "was not found" in run(capsys, "check", NAME)[1]
    monkeypatch.chdir("/")
    assert "no folder exercises in /" in run(capsys, "reset", NAME)[1]


@pytest.mark.parametrize(
    "source, told",
    [
        ("def f(:", "SyntaxError: invalid syntax\nat exercises/02_collectives.ipynb, cell 4, line 1: def f(:"),
        ("1 / 0", "ZeroDivisionError: division by zero\nat exercises/02_collectives.ipynb, cell 4, line 1: 1 / 0"),
    ],
)
def test_a_notebook_that_does_not_run(capsys, reader, source, told):
    write(reader, "tree_broadcast", source)
    status, said = run(capsys, "check", NAME)
    assert status == 1 and told in said


def test_a_damaged_progress(capsys, reader):
    (reader.parent / "progress.json").write_text("[")
    status, said = run(capsys)
    assert status == 1 and "delete it and begin anew" in said
