"""A box for each sequence; a share that counts too much is red, and one of nothing is crossed out."""

import pytest
from visuals.drawn import assert_can_be_read, texts, written

from tinydist import visuals
from tinydist.visuals.palette import INK, RED


def colors(figure):
    return {text.get_text(): text.get_color() for text, _ in texts(figure)}


def test_equal_shares_count_the_same(said):
    figure = visuals.batch_shares([4, 4, 4, 4])
    assert colors(figure)["1/16 each"] == INK
    assert [len(boxes.get_paths()) for boxes in figure.axes[0].collections] == [4] * 4
    assert said() == "shares of 4, 4, 4, 4 sequences\n"
    assert_can_be_read(figure)


def test_uneven_shares_are_red():
    figure = visuals.batch_shares([6, 6, 4])
    assert {colors(figure)[text] for text in ("1/18 each", "1/12 each")} == {RED}
    assert_can_be_read(figure)


def test_a_rank_without_any_is_crossed_out(said):
    figure = visuals.batch_shares([4, 4, 4, 4, 0])
    assert "nothing" in written(figure) and colors(figure)["1/20 each"] == RED
    assert [line.get_color() for line in figure.axes[0].lines] == [RED] * 3
    assert said() == "shares of 4, 4, 4, 4, 0 sequences; nothing for rank 4\n"
    assert_can_be_read(figure)


@pytest.mark.parametrize("sizes", [[16], [2] * 8, [3, 3, 3, 3, 3, 1, 0]])
def test_few_and_many_can_be_read(sizes):
    assert_can_be_read(visuals.batch_shares(sizes))


def test_not_too_many_ranks():
    with pytest.raises(ValueError, match=r"^batch_shares: at most 8 ranks are supported, got 9$"):
        visuals.batch_shares([1] * 9)
