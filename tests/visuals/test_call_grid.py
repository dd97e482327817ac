"""A cell for each call of each rank, in the color of its text; where there is no call, that is said."""

import pytest
from visuals.drawn import assert_can_be_read, written

from tinydist import visuals

HANG = [["line 29", "line 19", "line 29", "line 29"], *[["line 29"] * 3] * 3]


def colors(figure):
    return [tuple(each.get_facecolor()[0]) for each in figure.axes[0].collections]


def test_each_text_has_its_color(said):
    figure = visuals.call_grid(HANG)
    cells = colors(figure)
    assert len(cells) == 16 and len(set(cells)) == 3
    assert cells[0] == cells[2] == cells[3] == cells[4] != cells[1]
    assert cells[7] == cells[11] == cells[15] not in cells[:7]
    assert written(figure).count("no call") == 3
    assert said() == "4 ranks with 4, 3, 3, 3 calls\n"
    assert_can_be_read(figure)


def test_a_call_is_framed(said):
    figure = visuals.call_grid(HANG, mark=2)
    [frame] = figure.axes[0].patches
    assert (frame.get_x(), frame.get_width(), frame.get_height()) == (1, 1, 4)
    assert said() == "4 ranks with 4, 3, 3, 3 calls; call 2 is line 19, line 29, line 29, line 29\n"
    assert_can_be_read(figure)


@pytest.mark.parametrize("calls", [[["line 1"]], [["line 1"] * 12] * 16, [[], ["a long line of code, 17 in train"]]])
def test_few_and_many_can_be_read(calls):
    assert_can_be_read(visuals.call_grid(calls))


def test_calls_that_are_none():
    with pytest.raises(ValueError, match="mark must be one of the calls 1 to 4, got 5"):
        visuals.call_grid(HANG, mark=5)
    with pytest.raises(ValueError, match="at most 5 different texts have a color, got 6"):
        visuals.call_grid([list("abcdef")])
