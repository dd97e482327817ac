"""A point for each number of each rank, and a bar at each average."""

import pytest
from visuals.drawn import assert_can_be_read, written

from tinydist import visuals
from tinydist.visuals.palette import RANKS

VALUES = [[1, -2, 3], [3, 2, 1]]


def test_points_and_bars(said):
    figure = visuals.rank_values(VALUES, [2, 0, 2], "the components", "gradient")
    [axes] = figure.axes
    assert [list(line.get_ydata()) for line in axes.lines] == VALUES
    assert [line.get_color() for line in axes.lines] == RANKS[:2]
    assert [bar.get_y() + bar.get_height() / 2 for bar in axes.patches] == pytest.approx([2, 0, 2])
    assert {"rank 0", "rank 1", "average"} <= set(written(figure))
    assert said() == "3 numbers of 2 ranks, and their average\n"
    assert_can_be_read(figure)


@pytest.mark.parametrize("ranks, numbers", [(1, 1), (8, 12)])
def test_few_and_many_can_be_read(ranks, numbers):
    assert_can_be_read(visuals.rank_values([[1.5] * numbers] * ranks, [1.5] * numbers, "the components", "gradient"))


def test_as_many_numbers_and_not_too_many_ranks():
    with pytest.raises(ValueError, match=r"^rank_values: the average has 1 numbers, but rank 0 has 3$"):
        visuals.rank_values(VALUES, [2], "x", "y")
    with pytest.raises(ValueError, match=r"^rank_values: at most 8 ranks are supported, got 9$"):
        visuals.rank_values([[1]] * 9, [1], "x", "y")
