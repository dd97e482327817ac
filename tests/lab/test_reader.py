"""What a reader sees: check and hint."""

import sys
from functools import partial

import pytest
from lab.mini import Stated, course_of

from tinydist.console import progress_message as module
from tinydist.console.command_name import command
from tinydist.lab import check, hint
from tinydist.lab.errors import Wrong
from tinydist.lab.judging import judge
from tinydist.simulator.stuck import StuckError
from tinydist.syllabus import progress
from tinydist.syllabus.registry import find


@pytest.fixture(autouse=True)
def course(monkeypatch, tmp_path):
    """Two exercises, and a reader who has done nothing."""
    monkeypatch.setenv("TINYDIST_PROGRESS", str(tmp_path / "progress.json"))

    def double(x):
        raise NotImplementedError

    def triple(x):
        raise NotImplementedError

    first = Stated(double, properties, ["general", "specific"])
    course_of(monkeypatch, first, Stated(triple, properties, ["one"]))
    return double


def properties(answer):
    def judge():
        if answer(2) != 4:
            raise Wrong(f"2 gives {answer(2)}", picture)

    yield "two", "2 gives 4", judge


def picture():
    print("a picture")


def right(x):
    return 2 * x


def wrong(x):
    return x


right.__name__ = wrong.__name__ = "double"


def test_passed(capsys):
    assert check(right) is None
    assert capsys.readouterr().out == (
        "double: passed\n  two           ok     2 gives 4\n\nBecause.\nNext: triple (5 minutes)\n"
    )
    assert progress.load()["double"] == {"passed": True, "tries": 1, "hints": 0}


def test_a_note_is_for_those_whom_it_concerns(monkeypatch, capsys):
    words = {right: "A note."}
    monkeypatch.setattr(find("double"), "note", lambda answer: words.get(answer, ""))
    check(right)
    assert capsys.readouterr().out.endswith("Because.\nA note.\nNext: triple (5 minutes)\n")
    words.clear()
    check(right)
    assert "Because.\nNext:" in capsys.readouterr().out


def test_wrong_counts_as_a_try_and_takes_nothing_back(capsys):
    check(right)
    check(wrong)
    assert progress.load()["double"] == {"passed": True, "tries": 2, "hints": 0}
    assert capsys.readouterr().out.endswith("2 gives 2\n\nA hint: hint(double)\n")  # outside of a notebook no picture


def test_a_picture_in_a_notebook(capsys, monkeypatch):
    for place in ("reader", "judging"):
        monkeypatch.setattr(f"tinydist.lab.{place}.in_notebook", lambda: True)
    check(wrong)
    assert capsys.readouterr().out.endswith("A hint: hint(double)\na picture\n")


def test_not_yet_says_nothing_else_and_is_no_try(course, capsys):
    check(course)
    assert capsys.readouterr().out == "double: not yet\n"
    assert progress.load() == {}


def test_not_judged_is_no_try_and_gives_no_hint(capsys):
    def double(x):
        raise StuckError(0, 60.0, False, sys._getframe())

    check(double)
    said = capsys.readouterr().out
    assert said.startswith("double: not judged") and "hint" not in said
    assert progress.load() == {}


def test_what_is_no_answer_is_told_and_is_no_traceback(capsys):
    for answer in (None, partial(right), lambda x: x, misspelt, "double"):
        check(answer)
    hint("duoble")
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(f"there is no exercise None. {command()} lists them there is no exercise functools.partial(")
    assert said.count("there is no exercise 'duoble'. Did you mean double?") == 2
    assert "check takes your function: check(double), got 'double'" in said
    assert progress.load() == {}


def misspelt(x):
    return 2 * x


misspelt.__name__ = "duoble"


def test_hints_come_one_at_a_time(course, capsys):
    for asked in (course, "double", course):
        hint(asked)
    last = "Hint 2 of 2: specific\nThis is the last hint. A solution: solutions/99.ipynb\n"
    assert capsys.readouterr().out == "Hint 1 of 2: general\n" + last + last
    assert progress.load()["double"]["hints"] == 2


def test_a_damaged_progress_is_no_traceback(capsys, tmp_path):
    (tmp_path / "progress.json").write_text("{")
    check(right)
    hint("double")
    said = capsys.readouterr().out
    assert said.startswith("double: passed") and " ".join(said.split()).count("begin anew with") == 2
    assert "This try was not noted: " in said and "Hint 1 of 2: general\n\nThat you have seen it was not noted" in said


def test_progress_that_cannot_be_written_is_no_traceback(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TINYDIST_PROGRESS", str(tmp_path / "not there" / "progress.json"))
    check(right)
    hint("double")
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("progress.json cannot be written (No such file or directory)") == 2 and "Hint 1 of 2" in said


def test_the_first_check_says_that_it_loads(monkeypatch):
    told = []
    monkeypatch.setattr(
        "tinydist.lab.reader.judge_isolated", lambda *asked: told.extend(module.messages) or judge(*asked)
    )
    check(right)
    monkeypatch.setattr("tinydist.lab.reader.LOADED_LATE", "not.loaded")
    check(right)
    assert told[1:] == ["check double, the first: parts of torch are loaded"] and told[0].startswith("check double")
