"""Answers that need no ranks: nothing is said of ranks, and each gets its arguments anew."""

from functools import partial
from typing import NamedTuple

import pytest
import torch

from tinydist.lab import limit
from tinydist.lab.alone import Calls, copied, input_of
from tinydist.lab.errors import Wrong
from tinydist.lab.limit import TooLong
from tinydist.lab.ranks import Trials

GIVEN = (torch.arange(3.0), (torch.ones(2), "text"), 5)


def inputs():
    yield input_of(partial(copied, GIVEN), "three numbers", expected=[0, 1, 2], kind="small")


def told(trials):
    with pytest.raises(Wrong) as wrong:
        trials.end()
    return str(wrong.value)


def test_an_input_is_told_by_what_it_is_about():
    (case,) = inputs()
    assert str(case) == "three numbers"
    assert (case.ranks, case.expected, case.kind) == (1, [0, 1, 2], "small")


def test_an_answer_cannot_change_what_the_next_one_gets():
    def doubles(numbers, pair, count):
        numbers *= 2
        pair[0].zero_()

    Calls(doubles, inputs()).end()
    assert GIVEN[0].tolist() == [0, 1, 2] and GIVEN[1][0].tolist() == [1, 1]
    (trial,) = Calls(doubles, inputs()).all
    assert trial.arguments[0][0].tolist() == [0, 2, 4]


def test_copies_are_of_the_same_form():
    class Named(NamedTuple):
        size: int

    numbers, (ones, text), count = copied(GIVEN)
    assert numbers is not GIVEN[0] and ones is not GIVEN[1][0] and (text, count) == ("text", 5)
    assert copied((Named(3),))[0].size == 3


def test_errors_say_on_no_rank():
    def fails(*arguments):
        raise ValueError("so it is")

    assert "rank 0" in told(Trials(fails, inputs()))
    text = told(Calls(fails, inputs()))
    assert text.startswith("With three numbers: ValueError: so it is\nat ") and "rank" not in text


def test_what_is_judged_together_is_told_of_no_input():
    def judge(trial):
        raise Wrong(f"{trial.returned[0]} came back")

    calls = Calls(lambda *arguments: len(arguments), inputs())
    for judge_all, text in (
        (calls.each(judge), "With three numbers: 3 came back"),
        (calls.together(judge), "3 came back"),
    ):
        with pytest.raises(Wrong) as wrong:
            judge_all()
        assert str(wrong.value) == text


def test_one_without_an_end_is_told_its_line(monkeypatch):
    monkeypatch.setattr(limit, "INSTRUCTIONS", 2000)

    def endless(*arguments):
        while True:
            pass

    trials = Calls(endless, inputs())
    assert isinstance(trials.all[0].error, TooLong)
    assert "it does not end:" in told(trials) and "while True" in told(trials)
