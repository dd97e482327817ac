"""A text stands in its box, or is not written."""

import pytest
from visuals.drawn import texts, written

from tinydist.visuals.canvas import canvas, inside, measure, picture
from tinydist.visuals.formatting import BYTES, SECONDS
from tinydist.visuals.palette import BLUE, INK, PAPER, SKY


@picture
def boxes(widths, texts, **options):
    figure, axes = canvas("Boxes in a row, with texts.", 1)
    axes.set_xlim(0, 100)
    for number, (width, text) in enumerate(zip(widths, texts)):
        inside(axes, (20 * number, 0, width, 1), text, BLUE, **options)
    axes.axis("off")
    return figure


def test_a_text_without_room_is_not_written():
    assert written(boxes([10, 1, 10], ["forward", "forward", 7])) == ["forward", "7"]


def test_all_together_or_none():
    assert written(boxes([10, 1], [1, 2], together="numbers")) == []
    assert written(boxes([10, 10], [1, 2], together="numbers")) == ["1", "2"]


def test_boxes_at_the_same_place_of_two_axes_are_two():
    @picture
    def two():
        figure, grid = canvas("Two axes, each with a box.", 1, ncols=2, width_ratios=[1, 20])
        for axes in grid:
            axes.axis("off")
            inside(axes, (0, 0, 1, 1), "forward", BLUE)
        return figure

    assert written(two()) == ["forward"]


def test_of_several_texts_the_first_that_has_room():
    several = [["blocks.3.mlp", "mlp", ""]] * 2
    assert written(boxes([15, 6], several)) == ["blocks.3.mlp", "mlp"]
    assert written(boxes([15, 6], several, together="names")) == ["mlp", "mlp"]
    assert written(boxes([15, 1], several, together="names")) == []


def test_it_stands_in_its_box():
    figure = boxes([12, 12], ["one", "two"])
    [axes] = figure.axes
    for (_, box), left in zip(texts(figure), (0, 20)):
        (x0, _), (x1, _) = axes.transData.transform([(left, 0), (left + 12, 1)])
        assert x0 < box.x0 and box.x1 < x1


@pytest.mark.parametrize("fill, ink", [(BLUE, PAPER), (SKY, INK), (PAPER, INK)])
def test_its_ink_can_be_seen(fill, ink):
    @picture
    def one():
        figure, axes = canvas("A box with a text.", 1)
        inside(axes, (0, 0, 1, 1), "a", fill)
        return figure

    assert {text.get_color() for text, _ in texts(one()) if text.get_text() == "a"} == {ink}


@pytest.mark.parametrize(
    "most, units, label, tick",
    [(3e-3, SECONDS, "time (ms)", "2"), (5e9, BYTES, "time (GB)", "2"), (0, BYTES, "time (B)", "0")],
)
def test_numbers_with_their_unit(most, units, label, tick):
    _, axes = canvas("An axis.", 1)
    measure(axes.xaxis, most, units, "time")
    number = 2e-3 if units is SECONDS else 2e9 if most else 0
    assert axes.get_xlabel() == label and axes.xaxis.get_major_formatter()(number) == tick
