"""The course in a folder of the reader's own: git sees nothing of it, what is new arrives, what he wrote stays."""

import errno
import json
import os
import subprocess
from pathlib import Path

import nbformat
import pytest
from lab.mini import note
from lab.shipped import ROOT
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tinydist.__main__ import main
from tinydist.console.command_name import command
from tinydist.syllabus import copy_course, progress, registry
from tinydist.syllabus.copy_course import FOLDERS, RECORD, WRITTEN, digest

CHAPTER, EXERCISES, DATA = "notebooks/00_first.ipynb", "exercises/00_first.ipynb", "notebooks/data/table.csv"


def course(folder, chapter="x = 1", stub="pass", task="Double it."):
    """A small one, as a clone has it."""
    cells = [new_markdown_cell("# First", id="first"), new_code_cell(chapter, id="code")]
    write(folder / CHAPTER, new_notebook(cells=cells))
    cells = [new_markdown_cell(task, id="task"), new_code_cell(stub, id="double", metadata={"tags": ["double"]})]
    cells += [new_code_cell("check(double)", id="double-check")]
    digests = {cell.id: digest(cell.source) for cell in cells}
    write(folder / EXERCISES, new_notebook(cells=cells, metadata={WRITTEN: digests}))
    for name, text in {"solutions/00_first/double.py": "", DATA: "a,b\r\n", "tests/x.py": ""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    write(folder / "solutions/00_first.ipynb", new_notebook())


def write(path, notebook):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nbformat.writes(notebook) + "\n")


def change(path, edit):
    notebook = nbformat.read(path, as_version=4)
    edit(notebook)
    write(path, notebook)


def runs(notebook):
    """All cells."""
    for cell in notebook.cells[1:]:
        cell.outputs, cell.execution_count = [new_output("stream", text="the reader's")], 7


def writes(source):
    return lambda notebook: notebook.cells[1].update(source=source)


def sources(path):
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


@pytest.fixture
def clone(tmp_path, monkeypatch):
    folder = tmp_path / "clone"
    course(folder)
    monkeypatch.setattr(copy_course, "HOMES", [folder])
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def copy(clone, capsys):
    """Makes it, or brings it up to date: what is said."""

    def copy():
        status = main(["copy-course", "course"])
        return capsys.readouterr().out if status == 0 else f"failed: {capsys.readouterr().out}"

    assert copy().startswith("The course is in course, yours to write in.")
    return copy


@pytest.fixture
def mine(clone, copy):
    return clone / "course"


# The whole course.


def names(folder):
    return {path.relative_to(folder).as_posix() for name in FOLDERS for path in (folder / name).rglob("*.ipynb")}


def test_the_course_is_copied_whole_and_is_then_the_readers_own(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("TINYDIST_PROGRESS", raising=False)
    mine = tmp_path / "my course"
    assert main(["copy-course", str(mine)]) == 0 and f"The course is in {mine}, " in capsys.readouterr().out
    assert names(mine) == {name for name in names(ROOT) if "checkpoint" not in name}
    monkeypatch.chdir(mine)
    assert registry.root() == ROOT / "solutions"  # a check is never older than the library
    note("average_uneven", passed=True)
    assert main(["next"]) == 0 and capsys.readouterr().out.startswith("Next: mended_loop, ")
    assert main(["copy-course", "."]) == 0 and capsys.readouterr().out == ""
    assert progress.load()["average_uneven"]["passed"]


def test_links_of_notebooks_to_the_library_lead_there(clone, mine):
    assert (mine / "tinydist").resolve() == registry.PACKAGE and (mine / "tests" / "x.py").exists()
    assert not (mine / "examples").exists()  # where there is none


# What git sees.


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_whoever_reads_and_answers_can_pull(tmp_path, monkeypatch, capsys):
    upstream, clone = tmp_path / "upstream", tmp_path / "clone"
    course(upstream)
    (upstream / ".gitignore").write_bytes((ROOT / ".gitignore").read_bytes())
    git(upstream, "init", "-q"), git(upstream, "add", "-A"), git(upstream, "commit", "-qm", "First")
    git(tmp_path, "clone", "-q", "upstream", "clone")
    monkeypatch.setattr(copy_course, "HOMES", [clone])
    monkeypatch.chdir(clone)
    monkeypatch.delenv("TINYDIST_PROGRESS", raising=False)
    main(["copy-course", "course"])
    change(clone / "course" / CHAPTER, runs)
    change(clone / "course" / EXERCISES, writes("answer"))
    note("average_uneven", passed=True)
    assert git(clone, "status", "--porcelain") == ""
    course(upstream, chapter="x = 2", stub="...")
    git(upstream, "commit", "-qam", "Second")
    git(clone, "pull", "-q", "--ff-only")
    capsys.readouterr()
    assert main(["copy-course", "course"]) == 0
    reset = command("reset", "double")
    told = f"course/{EXERCISES} is new, but for your double: `{reset}` takes its stub.\nIn course, 2 files are new.\n"
    assert capsys.readouterr().out == told
    assert sources(clone / "course" / CHAPTER)[1] == "x = 2" and sources(clone / "course" / EXERCISES)[1] == "answer"
    assert progress.load()["average_uneven"]["passed"] and git(clone, "status", "--porcelain") == ""


# What arrives, and what stays.


def test_where_nothing_is_new_a_run_stays(copy, mine):
    change(mine / CHAPTER, runs)
    before = (mine / CHAPTER).read_bytes()
    assert copy() == "" and (mine / CHAPTER).read_bytes() == before


def test_what_was_run_and_no_more_becomes_new(clone, copy, mine):
    change(mine / CHAPTER, runs)
    course(clone, chapter="x = 2")
    assert copy() == "In course, 1 file is new.\n"
    assert (mine / CHAPTER).read_bytes() == (clone / CHAPTER).read_bytes()


EDITS = {
    "a changed cell": writes("x = 3"),
    "a cell of his own": lambda notebook: notebook.cells.append(new_code_cell("1 + 1")),
    "a cell that is gone": lambda notebook: notebook.cells.pop(),
    "another order": lambda notebook: notebook.cells.reverse() or runs(notebook),
}


@pytest.mark.parametrize("edit", list(EDITS.values())[:3], ids=list(EDITS)[:3])
def test_what_the_reader_has_changed_stays_and_is_told_once(clone, copy, mine, edit):
    change(mine / CHAPTER, edit)
    before = sources(mine / CHAPTER)
    assert copy() == ""
    course(clone, chapter="x = 2")
    told = f"course/{CHAPTER} stays: you have changed it. To take the new one, delete it, and do this again.\n"
    assert (copy(), copy()) == (told, "") and sources(mine / CHAPTER) == before
    course(clone, chapter="x = 4")
    assert copy() == told
    (mine / CHAPTER).unlink()
    assert copy() == "In course, 1 file is new.\n" and sources(mine / CHAPTER)[1] == "x = 4"


def test_whoever_takes_his_change_back_gets_what_is_new(clone, copy, mine):
    change(mine / CHAPTER, writes("x = 3"))
    course(clone, chapter="x = 2")
    copy()
    change(mine / CHAPTER, writes("x = 1"))
    assert copy() == "In course, 1 file is new.\n" and sources(mine / CHAPTER)[1] == "x = 2"


def test_of_exercises_all_becomes_new_but_what_he_wrote(clone, copy, mine):
    def works(notebook):
        writes("answer")(notebook)
        runs(notebook)
        notebook.cells.insert(2, new_code_cell("print(1)", id="mine"))

    change(mine / EXERCISES, works)
    course(clone, task="Halve it.")
    assert f"course/{EXERCISES} is new, but for your double: " in copy() and copy() == ""
    assert sources(mine / EXERCISES) == ["Halve it.", "answer", "print(1)", "check(double)"]
    check = nbformat.read(mine / EXERCISES, as_version=4).cells[3]
    assert check.outputs[0].text == "the reader's"  # the cell says the same
    course(clone, task="Double it.")  # and again
    assert "but for your double" in copy() and sources(mine / EXERCISES)[:2] == ["Double it.", "answer"]


def test_answers_of_before_there_was_a_copy_are_taken_along_and_stay(clone, capsys):
    change(clone / EXERCISES, writes("answer"))
    (clone / "exercises" / "progress.json").write_text("{}")
    assert main(["copy-course", "course"]) == 0
    mine = clone / "course"
    assert sources(mine / EXERCISES)[1] == "answer" and (mine / "exercises" / "progress.json").read_text() == "{}"
    course(clone, task="Halve it.")  # git checkout, git pull
    (mine / "exercises" / "progress.json").write_text('{"double": 1}')
    assert main(["copy-course", "course"]) == 0
    assert sources(mine / EXERCISES)[:2] == ["Halve it.", "answer"]
    assert (mine / "exercises" / "progress.json").read_text() == '{"double": 1}'


def test_a_notebook_with_another_name(clone, copy, mine):
    (clone / CHAPTER).rename(clone / "notebooks" / "01_first.ipynb")
    change(mine / CHAPTER, runs)
    assert copy() == "In course, 1 file is new.\n"
    assert [path.name for path in (mine / "notebooks").glob("*.ipynb")] == ["01_first.ipynb"]


def test_a_notebook_that_is_gone_stays_where_he_has_changed_it(clone, copy, mine):
    change(mine / CHAPTER, writes("x = 3"))
    (clone / CHAPTER).unlink()
    told = f"course/{CHAPTER} stays: you have changed it. The course goes on without it.\n"
    assert (copy(), copy()) == (told, "") and (mine / CHAPTER).exists()


@pytest.mark.parametrize("name", [CHAPTER, EXERCISES])
def test_a_damaged_notebook_stays(clone, copy, mine, name):
    (mine / name).write_text("{")
    course(clone, chapter="x = 2", task="Halve it.")
    assert f"course/{name} stays: you have changed it." in copy() and (mine / name).read_text() == "{"


# What goes wrong.


def fails_after(count):
    replace = os.replace

    def replace_or_fail(*names):
        nonlocal count
        count -= 1
        if count < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(*names)

    return replace_or_fail


@pytest.mark.parametrize("count", range(5))
def test_a_full_disk_leaves_what_the_next_copy_completes(clone, monkeypatch, capsys, count):
    with monkeypatch.context() as full:
        full.setattr(os, "replace", fails_after(count))
        assert main(["copy-course", "course"]) == 1
    told = capsys.readouterr().out
    again = "make room and do this again, or choose another folder"
    assert told == f"course cannot be written (No space left on device): {again}\n"
    there = [path for folder in FOLDERS for path in (clone / "course" / folder).rglob("*") if path.is_file()]
    assert all(path.read_bytes() == (clone / path.relative_to(clone / "course")).read_bytes() for path in there)
    course(clone, chapter="x = 2")
    assert main(["copy-course", "course"]) == 0 and " stays" not in capsys.readouterr().out
    assert names(clone / "course") == names(clone) and (clone / "course" / DATA).read_bytes() == b"a,b\r\n"


def test_an_update_that_breaks_off_is_completed(clone, copy, mine, monkeypatch):
    course(clone, chapter="x = 2", task="Halve it.")
    with monkeypatch.context() as full:
        full.setattr(os, "replace", fails_after(1))
        assert copy().startswith("failed: course cannot be written")
    assert " stays" not in copy() and sources(mine / CHAPTER)[1] == "x = 2"
    assert sources(mine / EXERCISES)[0] == "Halve it."


def test_a_record_that_is_lost_takes_nothing_of_the_readers_along(clone, copy, mine):
    change(mine / CHAPTER, writes("x = 3"))
    (mine / RECORD).write_text("[")
    course(clone, task="Halve it.")
    assert f"course/{CHAPTER} stays: you have changed it." in copy() and sources(mine / EXERCISES)[0] == "Halve it."
    assert set(json.loads((mine / RECORD).read_text())) == {CHAPTER, EXERCISES, DATA, "solutions/00_first.ipynb"}


def test_what_is_copied_may_be_written_though_the_package_may_not(clone, capsys):
    for path in clone.rglob("*.ipynb"):
        path.chmod(0o444)
    assert main(["copy-course", "course"]) == 0
    assert {path.stat().st_mode & 0o777 for path in Path("course").rglob("*.ipynb")} == {0o644}


def test_a_folder_that_cannot_be_written_is_told(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["copy-course", str(tmp_path / "file")]) == 1
    assert "file cannot be written (" in capsys.readouterr().out


def test_the_course_is_not_copied_onto_itself(clone, capsys):
    assert main(["copy-course", "."]) == 1
    assert capsys.readouterr().out == ". is the source of the course: choose another folder\n"


def test_an_empty_name_is_no_folder(capsys):
    assert main(["copy-course", ""]) == 1
    assert capsys.readouterr().out == "the folder has an empty name: `.` is the one that you are in\n"
