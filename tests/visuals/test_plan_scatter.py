"""Each plan is where it belongs, in the color and shape of its mesh; published MFUs and the limit are lines."""

import pytest
from visuals.drawn import assert_can_be_read, written

from tinydist import visuals

BEST = {(1, 1): (0.6, 70e9), (1, 4): (0.55, 30e9), (4, 4): (0.4, 10e9)}
EVERY = [(0.3, 8e9), (0.5, 60e9)]


def test_each_plan_is_a_point_with_the_color_of_one_axis_and_the_shape_of_the_other():
    [axes] = visuals.plan_scatter(BEST).axes
    points = {tuple(map(round, each.get_offsets()[0])): each for each in axes.collections}
    assert set(points) == {(60, 70), (55, 30), (40, 10)}
    one, wide, long = (points[place] for place in ((60, 70), (55, 30), (40, 10)))
    assert (one.get_facecolor() != wide.get_facecolor()).any()
    assert (wide.get_facecolor() == long.get_facecolor()).all()
    assert len(one.get_paths()[0]) == len(wide.get_paths()[0]) != len(long.get_paths()[0])


def test_other_settings_are_dots_and_what_is_known_is_a_line(capsys):
    how = dict(published={"they": 0.5, "others": 0.54}, whole=0.5, limit=("80 GB", 80e9))
    figure = visuals.plan_scatter(BEST, EVERY, **how)
    [axes] = figure.axes
    assert [len(each.get_offsets()) for each in axes.collections] == [2, 1, 1, 1]
    assert sorted(round(line.get_xdata()[0]) for line in axes.lines) == [0, 50, 54]
    assert {"they", "others", "other settings", "tp 4", "pp 4", "seconds of a step", "1"} <= set(written(figure))
    assert "MFU, share of the peak FLOP/s (marks: predicted, lines: measured)" in written(figure)
    said = " ".join(capsys.readouterr().out.split())
    assert "fastest: pp 1 x tp 1, 60 % and 70 GB; slowest of these: pp 4 x tp 4, 40 % and 10 GB" in said
    assert said.endswith("smallest of all 2 settings: 30 % and 8 GB")
    assert_can_be_read(figure)


def test_more_sizes_than_shapes_are_refused():
    with pytest.raises(ValueError, match="at most 5 sizes of pp can be told apart, got 6"):
        visuals.plan_scatter({(pp, 1): (0.5, 1e9) for pp in range(1, 7)})
