"""Rows: what is padded, who owns what, and that views see it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tinydist.zero.sharding import FlatSharding, PerParameterSharding, split_by_bytes

shapes = st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=6)


with_both_shardings = pytest.mark.parametrize("sharding", [FlatSharding, PerParameterSharding])


@with_both_shardings
@given(shapes, st.integers(1, 9))
def test_every_number_is_of_one_rank_and_none_is_lost(sharding, shapes, ranks):
    """By rank, each part is where its owner's shard begins; and back again."""
    laid = sharding(shapes, ranks)
    whole = torch.zeros(ranks * laid.own)
    for number, view in enumerate(laid.views(whole), 1):
        view.copy_(torch.arange(1.0, view.numel() + 1).view(view.shape) + 100 * number)
    row, found = laid.pack(whole), [[] for _ in shapes]
    for rank, shard in enumerate(row.chunk(ranks)):
        assert len(shard) == laid.own
        for parts, (_, place, size) in zip(found, laid.segments(rank), strict=True):
            parts.append(shard[place : place + size])
    for parts, view in zip(found, laid.views(whole), strict=True):
        assert torch.equal(torch.cat(parts), view.flatten())
    assert laid.padding == ranks * laid.own - sum(map(math.prod, shapes)) == int((row == 0).sum())
    back = laid.receive_buffer(row)
    laid.unpack(row, back)
    assert torch.equal(back, whole)


@given(shapes, st.integers(1, 9))
def test_a_row_needs_less_than_a_number_of_padding_for_each_rank(shapes, ranks):
    assert 0 <= FlatSharding(shapes, ranks).padding < ranks


@given(shapes.filter(lambda shapes: all(map(len, shapes))), st.integers(1, 9))
def test_by_parameter_ranks_own_what_chunk_gives(shapes, ranks):
    for rank in range(ranks):
        segments = PerParameterSharding(shapes, ranks).segments(rank)
        for shape, (start, _, size) in zip(shapes, segments, strict=True):
            chunks = torch.arange(math.prod(shape)).view(shape).chunk(ranks)
            expected = chunks[rank] if rank < len(chunks) else torch.empty(0)
            assert size == expected.numel() and (not size or start == expected.flatten()[0])


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 400))
def test_rows_are_split_by_bytes(sizes, limit):
    rows = split_by_bytes([nn.Parameter(torch.zeros(size)) for size in sizes], limit)
    assert [p.numel() for row in rows for p in row] == sizes[::-1]
    for row in rows[:-1]:
        assert sum(p.nbytes for p in row) >= limit > sum(p.nbytes for p in row[:-1])


def test_one_dtype_in_a_row():
    mixed = [torch.zeros(1), torch.zeros(2), torch.zeros(3, dtype=torch.float64), torch.zeros(4)]
    assert [[len(t) for t in row] for row in split_by_bytes(mixed, 1000)] == [[4], [3], [2, 1]]
