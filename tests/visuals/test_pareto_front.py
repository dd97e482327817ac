"""The front has what nothing else beats in both costs, and the best is marked within the limit."""

import pytest
from visuals.drawn import assert_can_be_read

from tinydist import visuals

POINTS = [(8.0, 20.0), (5.0, 200.0), (6.0, 300.0), (6.5, 90.0), (7.0, 60.0), (8.0, 10.0), (30.0, 10.0)]


def lines_of(figure):
    [axes] = figure.axes
    return {line.get_label(): [tuple(point) for point in line.get_xydata()] for line in axes.lines}


def test_nothing_beats_what_is_on_the_front_and_something_beats_all_else():
    front = lines_of(visuals.pareto_front(POINTS, "seconds", "GB"))["the front"]
    for point in POINTS:
        beaten = any(other != point and other[0] <= point[0] and other[1] <= point[1] for other in POINTS)
        assert (point in front) is not beaten
    assert front == sorted(front)


def test_the_best_within_the_limit_is_marked(capsys):
    figure = visuals.pareto_front(POINTS, "seconds", "GB", ("80 GB", 80))
    assert lines_of(figure)["the best of 4 within 80 GB"] == [(7, 60)]
    said = "front: 5 to 8 [seconds], 200 to 10 [GB]; the best within 80 GB: 7, 60"
    assert " ".join(capsys.readouterr().out.split()) == said
    assert_can_be_read(figure)


def test_nothing_is_marked_where_nothing_is_within_the_limit():
    assert not any("best" in name for name in lines_of(visuals.pareto_front(POINTS, "seconds", "GB", ("8 GB", 8))))


def test_costs_are_above_0():
    with pytest.raises(ValueError, match=r"^pareto_front: points must be .*both > 0"):
        visuals.pareto_front([(1.0, 0.0)], "seconds", "GB")
