"""A bar is as long as its number."""

import pytest
from matplotlib.colors import to_rgba

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
