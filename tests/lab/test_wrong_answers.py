"""No wrong answer passes, and each is told what is meant for it."""

import importlib
from pathlib import Path

import pytest

from tinydist.lab import judge
from tinydist.lab.exercise import CATALOGUE

CHAPTERS = sorted(path.stem for path in (Path(__file__).parent / "wrong_answers").glob("*.py"))
WRONG_ANSWERS = [
    each for chapter in CHAPTERS for each in importlib.import_module(f"lab.wrong_answers.{chapter}").WRONG_ANSWERS
]


@pytest.mark.parametrize(
    "answer, rejected_by, told", [each[1:] for each in WRONG_ANSWERS], ids=[e[0] for e in WRONG_ANSWERS]
)
def test_wrong_answer(answer, rejected_by, told):
    verdict = judge(answer)
    assert verdict.state == "wrong"
    assert [line.name for line in verdict.lines if line.state == "wrong"] == [rejected_by], verdict.wrong
    assert told in str(verdict.wrong)


def test_every_exercise_has_four_wrong_answers():
    names = [answer.__name__ for _, answer, *_ in WRONG_ANSWERS]
    assert {name for name in CATALOGUE if names.count(name) < 4} == set()


def test_every_property_rejects_an_answer():
    """A property that no wrong answer fails might be one that cannot fail."""
    rejecting = {(CATALOGUE[answer.__name__].check, rejected_by) for _, answer, rejected_by, _ in WRONG_ANSWERS}
    checks = [exercise.check for exercise in CATALOGUE.values()]
    judged = {(check, each.name) for check in checks for each in check(lambda *_: None)}
    assert judged - rejecting == set()
