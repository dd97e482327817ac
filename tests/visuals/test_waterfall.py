"""A waterfall's bars end where the next begin, and what is missing is a bar of its own."""

import pytest
from visuals.drawn import assert_can_be_read

from tinydist import visuals

GROUPS = {"expected": {"arithmetic": 3.0, "messages": 1.5}, "measured": {"slower": 2.0}}


def bars_of(figure):
    [axes] = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    return {name: (bar.get_x(), bar.get_x() + bar.get_width()) for name, bar in zip(names, axes.patches, strict=True)}


def test_each_part_begins_where_the_last_one_ended(capsys):
    figure = visuals.waterfall(GROUPS, "ms", ("published", 7.7))
    bars = {name: (round(start, 9), round(end, 9)) for name, (start, end) in bars_of(figure).items()}
    assert bars == {
        "arithmetic": (0, 3), "messages": (3, 4.5), "expected": (0, 4.5),
        "slower": (4.5, 6.5), "measured": (0, 6.5), "not explained": (6.5, 7.7), "published": (0, 7.7),
    }  # fmt: skip
    assert capsys.readouterr().out == "expected 4.50 ms; measured 6.50 ms; published 7.70 ms\n"
    assert_can_be_read(figure)


def test_nothing_is_missing_to_a_total_that_is_reached():
    assert list(bars_of(visuals.waterfall(GROUPS, "ms", ("published", 6.5))))[-2:] == ["measured", "published"]
    assert list(bars_of(visuals.waterfall(GROUPS, "ms")))[-1] == "measured"


def test_seconds_are_scaled(capsys):
    [axes] = visuals.waterfall({"expected": {"arithmetic": 0.003, "messages": 0.0015}}, "seconds").axes
    assert axes.get_xlabel() == "ms" and [round(bar.get_width(), 9) for bar in axes.patches] == [3, 1.5, 4.5]
    assert capsys.readouterr().out == "expected 4.50 ms\n"


def test_parts_are_above_0():
    with pytest.raises(ValueError, match=r"waterfall: groups must be a dict, group -> .part: a number > 0."):
        visuals.waterfall({"a": {"b": -1}}, "ms")
