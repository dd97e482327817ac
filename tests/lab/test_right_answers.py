"""Right answers pass, however they are written: those of a file for each chapter."""

import importlib
from pathlib import Path

import pytest

from tinydist.lab import judge

FILES = sorted(path.stem for path in Path(__file__).with_name("right_answers").glob("*.py"))
RIGHT_ANSWERS = [each for name in FILES for each in importlib.import_module(f"lab.right_answers.{name}").RIGHT_ANSWERS]


@pytest.mark.parametrize("answer", [answer for _, answer in RIGHT_ANSWERS], ids=[label for label, _ in RIGHT_ANSWERS])
def test_right_answer(answer):
    verdict = judge(answer)
    assert verdict.passed, verdict
