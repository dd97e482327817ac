"""Rows: what is padded, who owns what, and that views see it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import tinydist
from tinydist.zero.buckets import Bucket
from tinydist.zero.shards import ByParameter, InARow, split_by_bytes

shapes = st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=6)
some = settings(max_examples=25, deadline=None, derandomize=True, database=None)


on_both_layouts = pytest.mark.parametrize("layout", [InARow, ByParameter])


@on_both_layouts
@given(shapes, st.integers(1, 9))
def test_every_number_is_of_one_rank_and_none_is_lost(layout, shapes, ranks):
    """By rank, each part is where its owner's shard begins; and back again."""
    laid = layout(shapes, ranks)
    whole = torch.zeros(ranks * laid.own)
    for number, view in enumerate(laid.views(whole), 1):
        view.copy_(torch.arange(1.0, view.numel() + 1).view(view.shape) + 100 * number)
    row, found = laid.by_rank(whole), [[] for _ in shapes]
    for rank, shard in enumerate(row.chunk(ranks)):
        assert len(shard) == laid.own
        for parts, (_, place, size) in zip(found, laid.segments(rank), strict=True):
            parts.append(shard[place : place + size])
    for parts, view in zip(found, laid.views(whole), strict=True):
        assert torch.equal(torch.cat(parts), view.flatten())
    assert laid.padding == ranks * laid.own - sum(map(math.prod, shapes)) == int((row == 0).sum())
    back = laid.row_for(row)
    laid.by_parameter(row, back)
    assert torch.equal(back, whole)


@given(shapes, st.integers(1, 9))
def test_a_row_needs_less_than_a_number_of_padding_for_each_rank(shapes, ranks):
    assert 0 <= InARow(shapes, ranks).padding < ranks


@given(shapes.filter(lambda shapes: all(map(len, shapes))), st.integers(1, 9))
def test_by_parameter_ranks_own_what_chunk_gives(shapes, ranks):
    for rank in range(ranks):
        segments = ByParameter(shapes, ranks).segments(rank)
        for shape, (start, _, size) in zip(shapes, segments, strict=True):
            chunks = torch.arange(math.prod(shape)).view(shape).chunk(ranks)
            expected = chunks[rank] if rank < len(chunks) else torch.empty(0)
            assert size == expected.numel() and (not size or start == expected.flatten()[0])


@on_both_layouts
@some
@given(shapes.filter(lambda shapes: sum(map(math.prod, shapes))), st.integers(1, 5))
def test_all_own_everything_once(layout, shapes, ranks):
    """Each rank's segments, put at their places in the parameters, are the parameters."""

    def program():
        parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
        bucket = Bucket(parameters, layout)
        own = [(s.start, bucket.mine[s.place : s.place + s.size].clone()) for s in bucket.segments.values()]
        return own, [parameter.detach().flatten() for parameter in parameters]

    results = tinydist.launch(program, ranks, observe=False).results
    for number, whole in enumerate(results[0][1]):
        found = torch.full_like(whole, math.nan)
        for own, _ in results:
            start, segment = own[number]
            assert found[start : start + len(segment)].isnan().all(), "owned twice"
            found[start : start + len(segment)] = segment
        assert torch.equal(found, whole)


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 400))
def test_rows_are_split_by_bytes(sizes, limit):
    rows = split_by_bytes([nn.Parameter(torch.zeros(size)) for size in sizes], limit)
    assert [p.numel() for row in rows for p in row] == sizes[::-1]
    for row in rows[:-1]:
        assert sum(p.nbytes for p in row) >= limit > sum(p.nbytes for p in row[:-1])


def test_one_dtype_in_a_row():
    mixed = [torch.zeros(1), torch.zeros(2), torch.zeros(3, dtype=torch.float64), torch.zeros(4)]
    assert [[len(t) for t in row] for row in split_by_bytes(mixed, 1000)] == [[4], [3], [2, 1]]


def test_the_master_of_fp32_is_no_copy_and_of_16_bits_is():
    def program(dtype):
        bucket = Bucket([nn.Parameter(torch.ones(6, dtype=dtype))])
        master, whole = bucket.master.untyped_storage(), bucket.whole.untyped_storage()
        return bucket.master.dtype, master.data_ptr() == whole.data_ptr()

    for dtype, precise, shared in [
        (torch.float32, torch.float32, True),
        (torch.float64, torch.float64, True),
        (torch.float16, torch.float32, False),
        (torch.bfloat16, torch.float32, False),
    ]:
        assert tinydist.launch(program, 2, dtype).results == [(precise, shared)] * 2


@pytest.mark.parametrize("times", [1, 2])
def test_gradients_add_up_and_become_the_mean_over_the_ranks(times):
    def program():
        parameter = nn.Parameter(torch.zeros(5))
        bucket = Bucket([parameter])
        for _ in range(times):
            parameter.grad = torch.arange(5.0) * (torch.distributed.get_rank() + 1)
            bucket.take(parameter)
            assert parameter.grad is None and not bucket.missing
        for _ in bucket.reduction():
            pass
        return bucket.grad.tolist()

    mean = [1.5 * times * number for number in range(5)]
    assert tinydist.launch(program, 2).results == [mean[:3], [*mean[3:], 0.0]]
