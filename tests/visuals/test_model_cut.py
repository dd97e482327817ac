"""A box for each part of a layer, in its replica's panel; those of one rank are framed."""

import pytest
from visuals.drawn import assert_can_be_read, written

from tinydist import visuals

FIRST, LAST = ["embedding", "block 1"], ["block 2", "head"]


def held():
    """pp 2 x dp 2 x tp 2, tp the fastest."""
    for rank in range(8):
        part = rank % 2 / 2
        yield dict.fromkeys(LAST if rank >= 4 else FIRST, (part, part + 0.5))


def test_what_a_rank_holds_is_framed_and_its_replica_is_named(said):
    figure = visuals.model_cut(list(held()), rank=5)
    [axes] = figure.axes
    assert [(p.get_x(), p.get_width()) for p in axes.patches] == [(0.5, 0.5)] * 2
    assert said() == "rank 5 holds block 2 to head, of each matrix 50 to 100 %, as rank 7 does\n"
    texts = written(figure)
    assert [texts.count(str(rank)) for rank in range(8)] == [2] * 8
    assert {"replica 0", "replica 1", *FIRST, *LAST} <= set(texts)
    assert_can_be_read(figure)


def test_a_rank_that_holds_everything(said):
    visuals.model_cut([{"head": (0, 1)}], rank=0)
    assert said() == "rank 0 holds head, of each matrix 0 to 100 %\n"


def test_there_is_such_a_rank():
    with pytest.raises(ValueError, match="held has ranks 0 to 7, but rank 8 is to be marked"):
        visuals.model_cut(list(held()), rank=8)
