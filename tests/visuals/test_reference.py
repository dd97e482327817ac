"""The reference is a wide grey line, and what is compared lies on it or leaves it."""

from math import nan

import pytest
from visuals.drawn import assert_can_be_read, written

from tinydist import visuals
from tinydist.visuals.palette import LINE, SERIES

REFERENCE = [5.5, 4, 3.5, 3]


def test_a_wide_grey_line_and_the_others_over_it(said):
    figure = visuals.against_reference(REFERENCE, {"sum": [5.5, 6, 9, 14], "mean": REFERENCE}, "loss")
    [axes] = figure.axes
    reference, *others = axes.lines
    assert reference.get_color() == LINE and reference.get_linewidth() > 2 * others[0].get_linewidth()
    assert [line.get_color() for line in others] == list(SERIES[:2])
    assert {"one rank, all data", "sum", "mean", "step", "loss"} <= set(written(figure))
    assert said() == "on the grey line: mean; off the grey line: sum\n"
    assert_can_be_read(figure)


def test_the_reference_alone(said):
    figure = visuals.against_reference(REFERENCE, {}, "loss")
    assert said() == "one rank, all data: 4 steps\n"
    assert_can_be_read(figure)


def test_four_ranks_that_are_one_line():
    figure = visuals.against_reference(range(60), {f"rank {n} of 4": range(60) for n in range(4)}, "one weight")
    assert {f"rank {n} of 4" for n in range(4)} <= set(written(figure))
    assert_can_be_read(figure)


def test_what_becomes_nan_leaves_the_reference(said):
    visuals.against_reference(REFERENCE, {"a": [5.5, 4, nan, nan]}, "loss")
    assert said() == "off the grey line: a\n"


def test_a_line_may_leave_the_picture():
    figure = visuals.against_reference(REFERENCE, {"sum": [5.5, 6, 9, 140]}, "loss", limits=(0, 15))
    assert figure.axes[0].get_ylim() == (0, 15)
    assert_can_be_read(figure)


def test_as_many_steps_and_not_too_many_lines():
    with pytest.raises(ValueError, match=r"^against_reference: the reference has 4 steps, but 'a' has 1$"):
        visuals.against_reference(REFERENCE, {"a": [1]}, "loss")
    with pytest.raises(ValueError, match=r"^against_reference: at most 5 lines are supported, got 6$"):
        visuals.against_reference(REFERENCE, dict.fromkeys("abcdef", REFERENCE), "loss")
