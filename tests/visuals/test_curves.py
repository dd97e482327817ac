"""A line passes its points."""

import pytest

from tinydist import visuals


def test_a_line_for_each_name(capsys):
    [axes] = visuals.curves([1, 2, 4], {"linear": [1, 2, 4], "square": [1, 4, 16]}, "tokens", "FLOPs").axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[1, 2, 4], [1, 4, 16]]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["linear", "square"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("tokens", "FLOPs")
    assert list(axes.get_xticks()) == [1, 2, 4]
    assert capsys.readouterr().out == "linear: 1 to 4; square: 1 to 16 [FLOPs]\n"


def test_limit_and_powers():
    [axes] = visuals.curves([1, 1024], {"a": [2, 3]}, "x", "y", limit=("peak", 5), log=True).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert list(axes.lines[-1].get_ydata()) == [5, 5]


def test_bytes_to_gigabytes_are_powers_of_ten():
    [few] = visuals.curves([1, 1024], {"a": [2, 3]}, "ranks", "s", log=True).axes
    [many] = visuals.curves([1, 2**30], {"a": [2, 3]}, "bytes", "s", log=True).axes
    assert (few.xaxis.get_transform().base, many.xaxis.get_transform().base) == (2, 10)


def test_numbers_that_are_none(capsys):
    nan, inf = float("nan"), float("inf")
    [axes] = visuals.curves([1, 2], {"lost": [3, nan], "too large": [3, inf]}, "step", "loss").axes
    assert axes.lines[0].get_ydata()[0] == 3
    assert capsys.readouterr().out == "lost: 3 to nan; too large: 3 to inf [loss]\n"


def test_not_more_markers_than_can_be_told_apart():
    [axes] = visuals.curves(range(100), {"a": range(100)}, "x", "y").axes
    assert axes.lines[0].get_markevery() == 4
    [axes] = visuals.curves(range(25), {"a": range(25)}, "x", "y").axes
    assert axes.lines[0].get_markevery() == 1


def test_as_many_numbers_as_points():
    with pytest.raises(ValueError, match=r"^curves: 2 points need as many numbers, but 'a' has 3$"):
        visuals.curves([1, 2], {"a": [1, 2, 3]}, "x", "y")


def test_as_many_lines_as_can_be_told_apart():
    with pytest.raises(ValueError, match=r"^curves: it has looks for 5 lines, got 6$"):
        visuals.curves([1], {name: [1] for name in "abcdef"}, "x", "y")
