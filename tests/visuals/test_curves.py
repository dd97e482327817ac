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


def test_as_many_numbers_as_points():
    with pytest.raises(ValueError, match=r"^curves: 2 points need as many numbers, but 'a' has 3$"):
        visuals.curves([1, 2], {"a": [1, 2, 3]}, "x", "y")


def test_as_many_lines_as_can_be_told_apart():
    with pytest.raises(ValueError, match=r"^curves: it has looks for 5 lines, got 6$"):
        visuals.curves([1], {name: [1] for name in "abcdef"}, "x", "y")
