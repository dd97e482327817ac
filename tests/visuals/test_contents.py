"""What a figure draws is said in words: no axes, no grid, no legend."""

import pytest

from tinydist import visuals
from tinydist.visuals import palette
from tinydist.visuals.canvas import blocks, canvas, picture
from tinydist.visuals.contents import color_name, drawn_in
from tinydist.visuals.figure import mimebundle
from tinydist.visuals.palette import BLUE, INK, LINE, ORANGE, RED, tint


@pytest.mark.parametrize("name", ["BLUE", "ORANGE", "GREEN", "PURPLE", "YELLOW", "RED"])
@pytest.mark.parametrize("part", [0, 0.4, 0.75])
def test_a_color_of_the_palette_has_its_name_and_so_have_its_tints(name, part):
    assert color_name(tint(getattr(palette, name), part)) == name.lower()


def test_light_blue_is_blue_and_what_has_no_color_is_black_grey_or_white():
    assert {color_name(palette.SKY), color_name(palette.PALE)} == {"blue"}
    assert [color_name(each) for each in (palette.INK, palette.PAPER, "none")] == ["black", "white", None]
    assert {color_name(each) for each in (palette.DARK, palette.SOFT, palette.GREY, palette.LINE, palette.LIGHT)} == {
        "grey"
    }


def drawing(draw):
    @picture
    def one():
        figure, axes = canvas("A test of what is drawn.")
        draw(axes)
        axes.grid()
        return figure

    return drawn_in(one())


DRAWN = [
    (lambda axes: None, []),
    (lambda axes: axes.plot([1, 2], [1, 2], color=ORANGE), ["orange"]),
    (lambda axes: axes.plot([1, 2], [1, 2], "D--", color=RED), ["dashed", "diamond", "red"]),
    (lambda axes: axes.plot([1, 2], [1, 2], "^:", color=INK), ["black", "dotted", "triangle"]),
    (lambda axes: axes.bar([1], [1], color=BLUE), ["bar", "blue"]),
    (lambda axes: axes.hlines([1], 0, 1, color=LINE, linestyle="--"), ["dashed", "grey"]),
    (lambda axes: axes.text(0, 0, "1/18", color=RED), ["red"]),
    (lambda axes: axes.text(0, 0, "1/16", color=INK), []),
    (lambda axes: axes.annotate("", (0, 0), (1, 1), arrowprops={"arrowstyle": "->", "color": BLUE}), ["arrow", "blue"]),
    (lambda axes: blocks(axes, [(0, 0, 1, 1)], facecolor=BLUE), ["bar", "blue"]),
    (lambda axes: blocks(axes, [], facecolor=BLUE), []),
    (lambda axes: axes.scatter([1], [1], color=ORANGE), ["orange"]),
    (lambda axes: axes.imshow([[0, 1]], cmap=palette.NUMBERS), ["blue", "white"]),
]


@pytest.mark.parametrize("draw, words", DRAWN)
def test_each_artist_has_its_words(draw, words):
    assert drawing(draw) == words


def test_a_notebook_stores_them_with_the_picture():
    _, metadata = mimebundle(visuals.against_reference([3, 2, 1], {"sum": [3, 4, 5]}, "loss"))
    assert metadata["image/png"]["drawn"] == ["blue", "grey"]
