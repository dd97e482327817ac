"""A line passes its points."""

from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from visuals.drawn import texts

from tinydist import visuals
from tinydist.visuals.canvas import apart


def test_a_line_for_each_name(capsys):
    [axes] = visuals.curves([1, 2, 4], {"linear": [1, 2, 4], "square": [1, 4, 16]}, "tokens", "FLOPs").axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[1, 2, 4], [1, 4, 16]]
    assert [text.get_text() for text in axes.texts] == ["linear", "square"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("tokens", "FLOPs")
    assert list(axes.get_xticks()) == [1, 2, 4]
    assert capsys.readouterr().out == "linear: 1 to 4; square: 1 to 16 [FLOPs]\n"


def test_of_lines_that_go_up_and_down_the_spread_is_said(capsys):
    figure = visuals.curves([1, 2, 3], {"a": [1, 5, 2]}, x="step", y="loss", spread=True)
    assert capsys.readouterr().out == "a: between 1 and 5 [loss]\n"
    assert figure.alt == "Lines of loss over step from 1 to 3: a between 1 and 5."


def test_the_spread_is_of_the_points_that_there_are(capsys):
    visuals.curves([1, 2, 3], {"a": [nan, 5, 2]}, x="step", y="loss", spread=True)
    assert capsys.readouterr().out == "a: between 2 and 5 [loss]\n"


def test_limit_and_powers():
    [axes] = visuals.curves([1, 1024], {"a": [2, 3]}, "x", "y", limit=("peak", 5), log=True).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert list(axes.lines[-1].get_ydata()) == [5, 5]


def test_crosses_are_on_the_first_line_and_named():
    [axes] = visuals.curves(
        [0, 1, 2], {"scale": [4, 2, 1], "b": [1, 1, 1]}, "step", "y", crosses=("skipped", [0, 2])
    ).axes
    assert list(axes.lines[-1].get_xdata()) == [0, 2] and list(axes.lines[-1].get_ydata()) == [4, 1]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["skipped"]
    with pytest.raises(ValueError, match="crosses must be"):
        visuals.curves([0, 1], {"a": [1, 2]}, "x", "y", crosses=[0])


@pytest.mark.parametrize("jumps, style", [(True, "steps-post"), (False, "default")])
def test_a_line_that_jumps_holds_its_number_up_to_the_next_point(jumps, style):
    [axes] = visuals.curves([0, 1, 2], {"scale": [4, 2, 1]}, "step", "scale", jumps=jumps).axes
    assert axes.lines[0].get_drawstyle() == style


def test_bytes_to_gigabytes_are_powers_of_ten():
    [few] = visuals.curves([1, 1024], {"a": [2, 3]}, "ranks", "s", log=True).axes
    [many] = visuals.curves([1, 2**30], {"a": [2, 3]}, "bytes", "s", log=True).axes
    assert (few.xaxis.get_transform().base, many.xaxis.get_transform().base) == (2, 10)


def test_bytes_are_written_as_such():
    figure = visuals.curves([2**power for power in range(9, 32)], {"a": range(23)}, "bytes", "GB/s", log="x")
    assert {"1 kB", "1 MB", "1 GB"} < {text.get_text() for text, _ in texts(figure)}


def test_powers_on_one_axis_alone():
    [axes] = visuals.curves([1, 1024], {"a": [2, 3]}, "x", "y", log="x").axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    with pytest.raises(ValueError, match="curves: log must be True, False or 'x', got 'y'"):
        visuals.curves([1, 1024], {"a": [2, 3]}, "x", "y", log="y")


def test_numbers_that_are_none(capsys):
    [axes] = visuals.curves([1, 2], {"lost": [3, nan], "too large": [3, inf]}, "step", "loss").axes
    assert axes.lines[0].get_ydata()[0] == 3
    assert capsys.readouterr().out == "lost: 3 to nan; too large: 3 to inf [loss]\n"


def test_a_name_stands_beside_its_line_and_not_on_another():
    figure = visuals.curves([1, 2], {"a": [0, 5], "b": [0, 5.1], "c": [9, 0]}, "x", "y")
    found = {text.get_text(): box for text, box in texts(figure) if text.get_text() in "abc"}
    [axes] = figure.axes
    height = {name: axes.transData.transform((2, last))[1] for name, last in (("a", 5), ("b", 5.1), ("c", 0))}
    assert found["c"].y0 < height["c"] < found["c"].y1
    assert found["a"].y1 <= found["b"].y0 and all(abs(found[each].y0 - height[each]) < 20 for each in "ab")


@given(st.lists(st.floats(0, 100), min_size=1, max_size=7))
def test_names_keep_their_order_and_their_distance(heights):
    found = apart(heights, 13, 100)
    order = sorted(range(len(heights)), key=lambda each: heights[each])
    assert all(found[b] - found[a] >= 13 - 1e-9 for a, b in pairwise(order))
    assert min(found) >= -1e-9 and max(found) <= 100 + 1e-9


def test_a_line_that_ends_says_where():
    [axes] = visuals.curves(range(4), {"lost": [3, 4, nan, nan], "kept": [3, 2, 1, 1]}, "step", "loss").axes
    assert [text.get_text() for text in axes.texts] == ["lost: nan from 2 on", "kept"]


@pytest.mark.parametrize("alone", [[3, nan, nan], [nan, 3, nan]])
def test_a_point_alone_is_no_line_that_ends(alone, capsys):
    [axes] = visuals.curves(range(3), {"alone": alone, "kept": [3, 2, 1]}, "step", "loss", spread=True).axes
    assert [text.get_text() for text in axes.texts] == ["alone", "kept"]
    assert capsys.readouterr().out == "alone: 3; kept: between 1 and 3 [loss]\n"


def test_points_are_in_their_order_from_left_to_right():
    [axes] = visuals.curves([4, 2, 1], {"a": [1, 2, 3]}, "heads", "loss").axes
    left, right = axes.get_xlim()
    assert left > right and [text.get_text() for text in axes.texts] == ["a"]


def test_y_may_begin_at_zero():
    [axes] = visuals.curves([1, 2], {"a": [8, 9]}, "x", "y", zero=True).axes
    assert axes.get_ylim()[0] == 0


def test_a_y_axis_that_begins_above_zero_is_marked_as_cut():
    [axes] = visuals.curves([1, 2], {"a": [90, 95]}, "x", "y", bottom=70).axes
    first, *strokes = axes.lines
    assert axes.get_ylim()[0] == 70
    assert list(first.get_ydata()) == [90, 95]
    assert [stroke.get_clip_on() for stroke in strokes] == [False, False]
    [axes] = visuals.curves([1, 2], {"a": [90, 95]}, "x", "y").axes
    assert len(axes.lines) == 1


def test_not_more_markers_than_can_be_told_apart():
    [axes] = visuals.curves(range(100), {"a": range(100)}, "x", "y").axes
    assert axes.lines[0].get_markevery() == 4
    [axes] = visuals.curves(range(25), {"a": range(25)}, "x", "y").axes
    assert axes.lines[0].get_markevery() == 1


def test_as_many_numbers_as_points():
    with pytest.raises(ValueError, match=r"^curves: 2 points need one value each, but 'a' has 3$"):
        visuals.curves([1, 2], {"a": [1, 2, 3]}, "x", "y")


def test_as_many_lines_as_can_be_told_apart():
    with pytest.raises(ValueError, match=r"^curves: at most 5 lines are supported, got 6$"):
        visuals.curves([1], {name: [1] for name in "abcdef"}, "x", "y")
