"""The command line, as a reader uses it: on a folder of exercises of his own."""

import errno
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import nbformat
import pytest
from lab.mini import note
from lab.shipped import EXERCISES, ROOT

from tinydist.__main__ import in_a_child, main
from tinydist.console.command_name import command
from tinydist.syllabus import progress
from tinydist.syllabus.registry import course, find, of_chapter

NAME = "broadcast_in_parts"
WRONG = f"""%matplotlib inline
def {NAME}(tensor, src):
    return tensor.foo()
check({NAME})
"""


@pytest.fixture(autouse=True)
def reader(monkeypatch, tmp_path):
    monkeypatch.delenv("TINYDIST_PROGRESS", raising=False)
    monkeypatch.setattr("tinydist.__main__.ProcessPoolExecutor", ThreadPoolExecutor)  # no child
    monkeypatch.chdir(tmp_path)
    shutil.copytree(EXERCISES, tmp_path / "exercises")
    return tmp_path / "exercises" / f"{find(NAME).chapter}.ipynb"


def write(path, name, source):
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if name in cell.metadata.get("tags", [])]
    cell.source = source
    nbformat.write(notebook, path)


def solution():
    cells = nbformat.read(ROOT / "solutions" / f"{find(NAME).chapter}.ipynb", as_version=4).cells
    return next(cell.source for cell in cells if NAME in cell.metadata.get("tags", []))


def run(capsys, *arguments):
    status = main(list(arguments))
    return status, capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["list"]])
def test_list(capsys, arguments):
    note("left_reduce_scatter", passed=True, tries=3)
    status, said = run(capsys, *arguments)
    lines = said.splitlines()
    assert status == 0 and lines[0] == "00_start_here"
    chapter = lines.index("02_collectives")
    assert lines[chapter + 1] == (
        "  done left_reduce_scatter     20 min  ***    A reduce-scatter the other way round (3 tries)"
    )
    assert lines[chapter + 2].startswith(f"  -    {NAME}")
    there = [each.name for each in course() if (EXERCISES / f"{each.chapter}.ipynb").exists()]
    assert lines[-1] == f"1 of {len(there)} done. Next: {there[0]}."


def test_a_chapter_whose_notebook_is_not_there_is_not_listed(capsys, reader, monkeypatch):
    for notebook in reader.parent.glob("*.ipynb"):
        if notebook != reader:
            notebook.unlink()
    names = [exercise.name for exercise in of_chapter(reader.stem)]
    for name in names:
        note(name, passed=True)
    said = run(capsys)[1]
    titles = [line for line in said.splitlines() if line[0] != " "]
    assert titles == [reader.stem, f"{len(names)} of {len(names)} done. All are done."]
    monkeypatch.chdir("/")  # no folder at all
    said = run(capsys)[1]
    assert all(exercise.chapter in said for exercise in course())


def test_list_of_some_chapters(capsys):
    chapters = {exercise.chapter for exercise in course() if exercise.chapter.startswith("03")}
    titles = [line for line in run(capsys, "list", "03")[1].splitlines() if not line.startswith(" ")]
    assert len(chapters) == 4 and set(titles[:-1]) == chapters and f" of {len(course())} done" in titles[-1]
    status, said = run(capsys, "list", "no")
    assert status == 1 and said.startswith("unknown chapter 'no'. There are 00_start_here, 01")


def test_check_of_a_chapter(capsys, reader):
    names = [exercise.name for exercise in of_chapter(reader.stem)]
    write(reader, NAME, solution())
    status, said = run(capsys, "check", reader.stem)
    assert status == 1 and [name for name in names if f"{name}: not yet" in said] == [n for n in names if n != NAME]
    assert f"{NAME}: passed" in said
    shutil.copy(ROOT / "solutions" / reader.name, reader)
    status, said = run(capsys, "check", reader.stem)
    assert status == 0 and [said.count(f"{name}: passed") for name in names] == [1] * len(names)


def test_check_of_an_answer_and_its_exit_status(capsys, reader):
    where = "Work on it in exercises/02_collectives.ipynb, and save the notebook"
    assert run(capsys, "check", NAME) == (1, f"{NAME}: not yet\n\n{where}\n")
    write(reader, NAME, WRONG)
    status, said = run(capsys, "check", NAME)
    assert status == 1 and f"hint: {command('hint', NAME)}" in said
    assert "AttributeError: 'Tensor' object has no attribute 'foo'\nrank 0, at exercises/02_collectives.ipynb" in said
    assert f"line 3, in {NAME}: return tensor.foo()" in said
    assert said.count(f"{NAME}: wrong") == 1  # the check in the cell was left out
    write(reader, NAME, solution())
    status, said = run(capsys, "check", NAME)
    assert status == 0 and said.startswith(f"{NAME}: passed") and "Next: mended_all_reduce" in said
    assert progress.load()[NAME] == {"passed": True, "tries": 2, "hints": 0}


def test_where_nothing_may_be_written_nobody_is_told_to_save(capsys, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    said = run(capsys, "check", NAME)[1]
    assert f"is not writable: `{command('copy-course', 'FOLDER')}` copies" in said and "save" not in said


def test_in_a_clone_the_copy_is_the_readers(capsys, reader, monkeypatch):
    """Which has the repository's own folder, too."""
    clone = reader.parent.parent / "clone"
    shutil.copytree(reader.parent, clone / "exercises")
    shutil.copytree(reader.parent, clone / "course" / "exercises")
    write(clone / "exercises" / reader.name, NAME, WRONG)
    monkeypatch.chdir(clone)
    assert "Work on it in course/exercises/02_collectives.ipynb, " in run(capsys, "check", NAME)[1]
    note(NAME, passed=True)
    assert ", in course/exercises/00_start_here.ipynb" in run(capsys, "next")[1]
    assert [path.parent.parent.name for path in clone.rglob("progress.json")] == ["course"]
    run(capsys, "reset", NAME)
    monkeypatch.chdir(clone / "exercises")
    assert f"{NAME}: wrong" in run(capsys, "check", NAME)[1]


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
    for name in ("check", "hint", "reset"):
        status, said = run(capsys, name, "left_reduce_scater")
        assert status == 1
        assert said == "there is no exercise 'left_reduce_scater'. Did you mean left_reduce_scatter?\n"
    write(reader, NAME, "x = 1")
    status, said = run(capsys, "check", NAME)
    assert status == 1 and f"does not define {NAME}: `{command('reset', NAME)}` puts its stub back" in said
    reader.unlink()
    assert "was not found" in run(capsys, "check", NAME)[1]
    monkeypatch.chdir("/")
    assert "no folder exercises in /" in run(capsys, "reset", NAME)[1]


@pytest.mark.parametrize(
    "source, told",
    [
        ("def f(:", "SyntaxError: invalid syntax\nat exercises/02_collectives.ipynb, cell 4, line 1: def f(:"),
        ("import sys; sys.exit(0)", "SystemExit: 0\nat exercises/02_collectives.ipynb, cell 4, line 1: import sys;"),
        ("1 / 0", "ZeroDivisionError: division by zero\nat exercises/02_collectives.ipynb, cell 4, line 1: 1 / 0"),
    ],
)
def test_a_notebook_that_does_not_run(capsys, reader, source, told):
    write(reader, "left_reduce_scatter", source)
    status, said = run(capsys, "check", NAME)
    assert status == 1 and told in said


def test_a_damaged_progress_is_told_and_reset_sets_it_aside(capsys, reader):
    path = reader.parent / "progress.json"
    path.write_text("[")
    status, said = run(capsys)
    assert status == 1 and f"begin anew with {command('reset', 'NAME')}" in said
    status, said = run(capsys, "reset", NAME)
    assert status == 0 and f"begins anew; the old file is {path}.damaged." in said
    assert run(capsys)[0] == 0


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"nbformat": 4}', "\xff"])
def test_a_damaged_notebook_is_told_and_reset_makes_a_new_one(capsys, reader, text):
    shutil.copytree(ROOT / "solutions", reader.parent.parent / "solutions")
    stubs = [cell.source for cell in nbformat.read(reader, as_version=4).cells]
    reader.write_text(text, encoding="latin-1")
    status, said = run(capsys, "check", NAME)
    assert status == 1 and "exercises/02_collectives.ipynb is no notebook" in said and command("reset", "NAME") in said
    status, said = run(capsys, "reset", NAME)
    assert status == 0 and "the old file is exercises/02_collectives.ipynb.damaged" in said
    assert [cell.source for cell in nbformat.read(reader, as_version=4).cells] == stubs
    assert (reader.parent / "02_collectives.ipynb.damaged").read_text(encoding="latin-1") == text


def test_a_notebook_that_cannot_be_written(capsys, monkeypatch, reader):
    monkeypatch.setattr(os, "replace", no_space)
    before = sorted(reader.parent.iterdir())
    status, said = run(capsys, "reset", NAME)
    assert (status, said) == (1, "exercises/02_collectives.ipynb cannot be written (No space left on device)\n")
    assert sorted(reader.parent.iterdir()) == before


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# The process


@pytest.mark.parametrize("leave", [os._exit, sys.exit])
def test_a_notebook_that_ends_its_process_has_not_passed(capsys, monkeypatch, leave):
    monkeypatch.undo()  # with a child
    assert in_a_child(leave, 0) == 1
    assert capsys.readouterr().out.startswith("No verdict: the notebook ended its own process.")


def python(program, **options):
    """Where torch is not installed, a process starts at once."""
    program = f"import sys; sys.modules['torch'] = None; from tinydist import __main__ as command_line\n{program}"
    return subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=60, **options)


@pytest.mark.parametrize("lines", [1, 100_000])
def test_whoever_reads_some_lines_and_goes_sees_no_traceback(lines):
    reads, writes = os.pipe()
    os.close(reads)
    done = python(f"sys.exit(command_line.while_somebody_reads(lambda: print('line\\n' * {lines})))", stdout=writes)
    os.close(writes)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_python_that_has_nothing_says_so(tmp_path):
    program = f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); runpy.run_module('tinydist', run_name='__main__')"
    alone = [sys.executable, "-I", "-S", "-c", program]
    for arguments, told in (([], "which tinydist needs. "), (["doctor"], "missing  torch")):
        done = subprocess.run([*alone, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (1, "") and told in done.stdout


def test_a_python_without_torch_says_which_one_to_use(tmp_path):
    program = (
        "command_line.VENV = command_line.Path(sys.argv[1]); sys.exit(command_line.main(['check', 'average_uneven']))"
    )
    program = program.replace("sys.argv[1]", repr(str(tmp_path / ".venv" / "bin" / "python")))
    told = f"{sys.executable} has no torch, which tinydist needs. "
    alone = python(program, cwd=tmp_path, stdout=subprocess.PIPE)
    assert (alone.returncode, alone.stderr) == (1, "")
    assert alone.stdout == f"{told}`make lab` creates an environment with it in .venv\n"
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    beside = python(program, cwd=tmp_path, stdout=subprocess.PIPE)
    assert beside.stdout == f"{told}Use another Python: .venv/bin/python -m tinydist\n"


# The browser


def test_open_shows_the_notebook_in_the_jupyterlab_that_serves_it(capsys, reader, monkeypatch):
    opened, server = [], {"url": "http://localhost:8888/", "token": "t"}
    monkeypatch.setattr("webbrowser.open", opened.append)
    servers = [server | {"root_dir": str(root)} for root in (reader.parent / "other", reader.parent.parent)]
    monkeypatch.setattr("jupyter_server.serverapp.list_running_servers", lambda: servers)
    assert run(capsys, "open", NAME) == (0, f"{reader.name} is open in your browser\n")
    assert opened == [f"http://localhost:8888/lab/tree/exercises/{reader.name}?token=t"]
    servers.pop()
    file = reader.parent / "00_start_here.ipynb"
    assert run(capsys, "open") == (1, f"{file} is the file. No JupyterLab serves its folder: `make lab` starts one\n")
