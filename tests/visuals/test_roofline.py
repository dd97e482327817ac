"""An operator's point lies on the roof, on its own side of the ridge."""

import pytest
from visuals.drawn import assert_can_be_read, written

from tinydist import visuals
from tinydist.hardware import DEVICES
from tinydist.visuals.palette import BLUE, RED

H100 = DEVICES["H100"]


def test_points_lie_on_the_roof(capsys):
    figure = visuals.roofline(H100, {"add": 0.5, "product": 1000})
    add, product = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert (add.get_xdata()[0], add.get_ydata()[0]) == (0.5, pytest.approx(0.5 * 3.35))
    assert (product.get_xdata()[0], product.get_ydata()[0]) == (1000, 989)
    assert (add.get_color(), product.get_color()) == (RED, BLUE)
    assert capsys.readouterr().out == "H100, ridge at 295 FLOPs per byte; memory-bound: add\n"


def test_a_cache_has_a_roof_of_its_own():
    figure = visuals.roofline(H100, {"small": 64, "large": 126, "once": 4000}, cache=("L2", 12e12))
    (roof,) = (line for line in figure.axes[0].lines if line.get_linestyle() == "--")
    assert roof.get_xdata()[1] == pytest.approx(989 / 12)
    points = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    assert [point.get_ydata()[0] for point in points] == [pytest.approx(768), 989]
    assert "all from L2, ridge: 82" in written(figure)
    assert_can_be_read(figure)


def test_names_of_close_points_do_not_overlap():
    close = {"a first": 80, "a second": 81, "the third": 85, "one": 900, "another": 950, "the last": 3000}
    figure = visuals.roofline(H100, close)
    assert set(close) <= set(written(figure))
    assert_can_be_read(figure)


def test_names_of_one_point_stand_together():
    figure = visuals.roofline(H100, {"scores": 80, "mix": 80, "projection": 630, "up": 1638, "down": 1638})
    assert {"scores, mix", "projection", "up, down"} <= set(written(figure))
    assert_can_be_read(figure)


def test_on_the_right_the_last_point_is_named_first():
    figure = visuals.roofline(H100, {"one": 900, "another": 950, "the last": 3000})
    heights = {text.get_text(): text.xyann[1] for text in figure.axes[0].texts if hasattr(text, "xyann")}
    assert heights["the last"] > heights["another"] > heights["one"]


def test_roof_is_that_of_the_dtype(capsys):
    visuals.roofline(H100, {"product": 1000}, dtype="float8")
    assert "ridge at 591 FLOPs per byte; memory-bound: none" in capsys.readouterr().out


def test_what_is_reached_lies_below_the_roof():
    figure = visuals.roofline(H100, {"add": 0.5, "product": 1000}, reached={"product": 700e12})
    *_, point = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert (point.get_xdata()[0], point.get_ydata()[0]) == (1000, pytest.approx(700))
    assert (point.get_color(), point.get_markerfacecolor()) == (BLUE, "white")
    assert {"at most, by the roofline", "expected", "TFLOP/s"} <= set(written(figure))
    assert_can_be_read(figure)
