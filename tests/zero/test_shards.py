"""Rows: what is padded, who owns what, and that views see it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import tinydist
from tinydist.zero.shards import FlatParameters, flatten, split_by_bytes, views

shapes = st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=6)
some = settings(max_examples=25, deadline=None, derandomize=True, database=None)


@given(shapes, st.integers(1, 9))
def test_a_row_divides_by_the_ranks_and_loses_nothing(shapes, ranks):
    tensors = [torch.randn(shape) for shape in shapes]
    row, size = flatten(tensors, ranks), sum(tensor.numel() for tensor in tensors)
    assert len(row) % ranks == 0 and 0 <= len(row) - size < ranks
    assert not row[size:].any()
    for tensor, view in zip(tensors, views(row, shapes), strict=True):
        assert torch.equal(tensor, view)
        assert view.numel() == 0 or view.untyped_storage().data_ptr() == row.untyped_storage().data_ptr()


@some
@given(shapes.filter(lambda shapes: sum(map(math.prod, shapes))), st.integers(1, 5))
def test_all_own_everything_once(shapes, ranks):
    """Each rank's segments, put at their places in the parameters, are the parameters."""

    def program():
        parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
        flat = FlatParameters(parameters)
        own = [(s.start, flat.mine[s.place : s.place + s.size].clone()) for s in flat.segments.values()]
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
        flat = FlatParameters([nn.Parameter(torch.ones(6, dtype=dtype))])
        return flat.master.dtype, flat.master.untyped_storage().data_ptr() == flat.whole.untyped_storage().data_ptr()

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
        flat = FlatParameters([parameter])
        for _ in range(times):
            parameter.grad = torch.arange(5.0) * (torch.distributed.get_rank() + 1)
            flat.take(parameter)
            assert parameter.grad is None and not flat.missing
        flat.reduce()()
        assert flat.row is None
        return flat.grad.tolist()

    mean = [1.5 * times * number for number in range(5)]
    assert tinydist.launch(program, 2).results == [mean[:3], [*mean[3:], 0.0]]
