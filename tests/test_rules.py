"""What an argument must be, and how that is said."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinydist import rules
from tinydist.rules import amount, count, each_of, floats, named, one_of, rate, validate, within

NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=True), st.booleans(), st.none(), st.text())


@validate(nbytes=amount, ranks=count, name=str)
def share(nbytes, ranks, name=None):
    return nbytes / ranks


@validate(most=within(1, 3))
class Box:
    def __init__(self, most=0):
        self.most = most

    @validate(other=int | None)
    def less(self, other):
        return self.most


class SmallBox(Box):
    pass


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        (lambda: share(-1, 2), ValueError, "share: nbytes must be a finite number >= 0, got -1"),
        (lambda: share(math.nan, 2), ValueError, "share: nbytes must be a finite number >= 0, got nan"),
        (lambda: share(8, ranks=0), ValueError, "share: ranks must be an integer >= 1, got 0"),
        (lambda: share(8, True), ValueError, "share: ranks must be an integer >= 1, got True"),
        (lambda: share(8, 2, 3), TypeError, "share: name must be a str or None, got 3"),
        (lambda: share(8, torch.ones(2, 3)), ValueError, "got a tensor [2, 3] of torch.float32"),
        (lambda: share(8, "x" * 100), ValueError, "got a str"),
        (lambda: Box(4), ValueError, "Box: most must be an integer from 1 to 3, got 4"),
        (lambda: SmallBox(4), ValueError, "SmallBox: most must be an integer from 1 to 3, got 4"),
        (lambda: Box().less("a"), TypeError, "Box.less: other must be an int or None, got 'a'"),
    ],
)
def test_an_error_names_the_operation_the_rule_and_what_came(wrong, error, message):
    with pytest.raises(error) as raised:
        wrong()
    assert message in str(raised.value)


def test_further_positional_arguments_are_not_taken_for_those_by_keyword():
    @validate(first=count, flag=rules.flag)
    def call(first, *more, flag=False):
        return more

    assert call(1, 2, 3) == (2, 3)
    with pytest.raises(ValueError, match="flag must be True or False, got 3"):
        call(1, 2, flag=3)


def test_what_only_a_body_knows():
    assert rules.must("cut", "sizes", each_of(count), [1]) == [1]
    with pytest.raises(ValueError, match=r"^cut: sizes must be a non-empty list, each item an integer >= 1, got \[\]$"):
        rules.must("cut", "sizes", each_of(count), [])


def test_what_fits_passes_and_so_does_the_default():
    assert share(8, 2) == share(ranks=2, nbytes=8, name=None) == share(np.float32(8), np.int64(2)) == 4
    assert Box().most == Box(0).most == 0 and share.__name__ == "share"


@given(NUMBERS)
def test_rules_of_numbers_imply_one_another(value):
    for narrow, wide in [
        (rules.count, rules.whole), (rules.whole, rules.integer), (rules.positive, rules.amount),
        (rules.part, rules.amount), (rules.amount, rules.finite), (rules.finite, rules.number), (rate, rules.number),
        (rules.listed, rules.count),
    ]:  # fmt: skip
        assert wide(value) or not narrow(value)
    assert rules.number(value) == (type(value) in (int, float))


@pytest.mark.parametrize(
    "rule, fits, breaks",
    [
        (rate, [math.inf, 0.1], [0, math.nan, "1"]),
        (amount, [0, 10**20], [math.inf, -0.1, 10**400, None]),
        (rules.part, [0, 1.0], [1.1, -1, math.nan]),
        (rules.flag, [True, False], [0, None, "yes"]),
        (floats, [torch.ones(2)], [torch.ones(2, dtype=torch.int64), 1.0]),
        (one_of(["a", "b"]), ["a"], ["c", [], None]),
        (each_of(count), [[1, 2], range(1, 3)], [[], [0], "12", 3, None, {1: 2}, torch.ones(())]),
        (each_of(count, 0), [[]], [[0]]),
        (named(str), [{"a": "b"}], [{}, {"a": 1}, ["b"]]),
        (type[Box], [Box, SmallBox], [Box(), int, None]),
    ],
)
def test_what_fits_a_rule_and_what_breaks_it(rule, fits, breaks):
    assert all(rules.holds(rule, value) for value in fits)
    assert not any(rules.holds(rule, value) for value in breaks)
