"""A bar is as long as its number."""

import pytest
from matplotlib.colors import to_rgba
from visuals.drawn import assert_can_be_read

from tinydist import visuals
from tinydist.visuals.palette import MEMORY


def lengths(axes):
    return [bar.get_width() for bar in axes.patches]


def test_a_bar_for_each_name(capsys):
    [axes] = visuals.bars({"one": 3, "two": 0.5}, "ms").axes
    assert lengths(axes) == [3, 0.5]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]
    assert [text.get_text() for text in axes.texts] == ["3", "0.50"]
    assert capsys.readouterr().out == "one: 3; two: 0.50 [ms]\n"


def test_parts_are_laid_end_to_end(capsys):
    [axes] = visuals.bars({"one": {"read": 2, "write": 1}, "two": {"write": 4}}, "GB").axes
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, 2), (2, 1), (0, 4)]
    first, second, third = (bar.get_facecolor() for bar in axes.patches)
    assert first != second == third
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()] == ["read", "write"]
    assert [text.get_text() for text in axes.texts] == ["3", "4", "2", "1", "4"]  # in all; of each part
    assert capsys.readouterr().out == "one: read 2 + write 1; two: write 4 [GB]\n"


def test_a_mark_says_where_a_bar_should_end():
    figure = visuals.bars({"one": {"read": 2, "write": 1}, "two": 4}, "ms", marks=("measured", {"one": 3.5, "two": 3}))
    [axes] = figure.axes
    assert [list(line.get_xdata()) for line in axes.lines] == [[3.5, 3.5], [3, 3]]
    assert [text.get_text() for text in axes.texts][:2] == ["3, measured 3.50", "4, measured 3"]
    assert figure.alt == "Bars of ms: one 3, measured 3.50, two 4, measured 3."
    assert_can_be_read(figure)


def test_shares_of_a_whole_have_no_total():
    figure = visuals.bars({"one": {"read": 75, "write": 25}, "two": {"read": 40, "write": 60}}, "% of the bytes")
    assert [text.get_text() for text in figure.axes[0].texts] == ["75", "25", "40", "60"]
    assert figure.alt == "Bars of % of the bytes: one read 75 + write 25, two read 40 + write 60."


def test_purposes_have_the_colors_of_the_memory_picture():
    [axes] = visuals.bars({"held": {"gradients": 1, "read": 2}}, "GB").axes
    assert axes.patches[0].get_facecolor() == to_rgba(MEMORY["gradients"]["facecolor"])


@pytest.mark.parametrize("log", [False, True])
def test_the_limit_and_all_bars_are_in_the_picture(log):
    [axes] = visuals.bars({"one": 1, "two": 64}, "GB", limit=("memory", 80), log=log).axes
    assert axes.get_xlim()[1] > 80
    assert axes.get_xscale() == ("log" if log else "linear")
    assert axes.lines[0].get_xdata() == [80, 80] and axes.texts[-1].get_text() == "memory"


def test_as_many_parts_as_can_be_told_apart():
    with pytest.raises(ValueError, match=r"^bars: at most 5 parts are supported, got 6: a, b, c, d, e, f$"):
        visuals.bars({"one": dict.fromkeys("abcdef", 1)}, "ms")


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
