"""Packed sequences: each as if it were alone, forward and backward, naive and in tiles."""

from functools import partial
from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import tinydist
from tinydist.attention import (
    GroupedQueryAttention,
    attention,
    flash_attention,
    packed_attention,
    packed_flash_attention,
)

DOUBLE = dict(rtol=0, atol=1e-12)
lengths, sizes = st.integers(0, 9), st.integers(1, 12)
windows = st.none() | st.integers(1, 10)


def random(*shape, seed=1):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def bounds(lengths):
    return [0, *accumulate(lengths)]


def inputs(T, S):
    return [random(2, heads, n, e, seed=e).requires_grad_() for heads, n, e in ((4, T, 3), (2, S, 3), (2, S, 5))]


def gradients(out, tensors):
    return torch.autograd.grad(out, tensors, torch.linspace(-1, 1, out.numel()).double().view_as(out))


def one_by_one(attend, q, k, v, lengths_q, lengths_k, **options):
    sequences = zip(q.split(lengths_q, dim=2), *(each.split(lengths_k, dim=2) for each in (k, v)))
    return torch.cat([attend(*each, **options) for each in sequences], dim=2)


@given(st.lists(st.tuples(lengths, lengths), min_size=1, max_size=6), st.booleans(), windows, st.tuples(sizes, sizes))
def test_each_sequence_as_if_alone(pairs, causal, window, tile):
    lengths_q, lengths_k = (list(each) for each in zip(*pairs))
    tensors, options = inputs(sum(lengths_q), sum(lengths_k)), dict(causal=causal, window=window, scale=0.7)
    cut = dict(cu_seqlens=bounds(lengths_q), cu_seqlens_k=bounds(lengths_k))
    for alone, packed in (
        (attention, packed_attention),
        (partial(flash_attention, tile=tile), partial(packed_flash_attention, tile=tile)),
    ):
        expected, found = (
            one_by_one(alone, *tensors, lengths_q, lengths_k, **options),
            packed(*tensors, **cut, **options),
        )
        torch.testing.assert_close(found, expected, **DOUBLE)
        torch.testing.assert_close(gradients(found, tensors), gradients(expected, tensors), **DOUBLE)


@pytest.mark.parametrize("packed", [packed_attention, packed_flash_attention])
def test_one_sequence_is_attention(packed):
    tensors = inputs(7, 7)
    found = packed(*tensors, torch.tensor([0, 7], dtype=torch.int32), causal=True)
    torch.testing.assert_close(found, attention(*tensors, causal=True), **DOUBLE)


@pytest.mark.parametrize("packed", [packed_attention, packed_flash_attention])
def test_heads_read_packed_sequences(packed):
    torch.manual_seed(0)
    layer, x = GroupedQueryAttention(24, 6, 2, rotary=100.0, attend=packed).double(), random(1, 9, 24)
    alone = [layer(each, causal=True, cu_seqlens=[0, each.shape[1]]) for each in x.split([4, 2, 3], dim=1)]
    found = layer(x, causal=True, cu_seqlens=[0, 4, 6, 9])  # positions go on, but only distances count
    torch.testing.assert_close(found, torch.cat(alone, dim=1), **DOUBLE)


def flops(packed, lengths, **options):
    x = torch.zeros(1, 1, sum(lengths), 8)
    with FlopCounterMode(display=False) as counter:
        packed(x, x, x, bounds(lengths), **options)
    return counter.get_total_flops()


def test_only_tiles_of_the_blocks_are_visited():
    of_8, others = [16, 8, 32, 8], [4, 1, 6, 2]
    assert flops(packed_attention, of_8) == 4 * 8 * 64**2
    assert flops(packed_flash_attention, of_8, tile=(8, 8)) == 4 * 8 * sum(n * n for n in of_8)
    assert flops(packed_flash_attention, others, tile=(1, 1)) == 4 * 8 * sum(n * n for n in others)
    triangles = sum(n * (n + 1) // 2 for n in others)
    assert flops(packed_flash_attention, others, tile=(1, 1), causal=True) == 4 * 8 * triangles


def test_memory_of_tiles_grows_with_the_tokens():
    def step(packed, **options):
        x = torch.ones(1, 1, 1024, 4, requires_grad=True)
        packed(x, x, x, list(range(0, 1025, 128)), **options).sum().backward()

    tiled = tinydist.launch(step, 1, partial(packed_flash_attention, tile=(128, 128))).memory[0].peak
    naive = tinydist.launch(step, 1, packed_attention).memory[0].peak
    assert tiled < 1024**2 < naive  # bytes: not even a mask


@pytest.mark.parametrize(
    "cu_seqlens, options, error",
    [
        ([0, 4], {}, r"cu_seqlens must be non-decreasing from 0 to the 5 tokens, got \[0, 4\]"),
        ([1, 5], {}, r"cu_seqlens must be non-decreasing from 0 to the 5 tokens, got \[1, 5\]"),
        ([0, 3, 2, 5], {}, r"cu_seqlens must be non-decreasing from 0 to the 5 tokens, got \[0, 3, 2, 5\]"),
        ([0, 2.5, 5], {}, r"cu_seqlens must be non-decreasing from 0 to the 5 tokens, got \[0, 2.5, 5\]"),
        (torch.tensor(5), {}, r"cu_seqlens must be non-decreasing from 0 to the 5 tokens, got 5"),
        ([0, 5], {"cu_seqlens_k": [0, 7]}, r"cu_seqlens_k must be non-decreasing from 0 to the 6 tokens, got \[0, 7\]"),
        (
            [0, 5],
            {"cu_seqlens_k": [0, 2, 6]},
            r"cu_seqlens and cu_seqlens_k must describe the same number of sequences, got 1 of queries, 2 of keys",
        ),
    ],
)
def test_errors(cu_seqlens, options, error):
    for packed in (packed_attention, packed_flash_attention):
        with pytest.raises(ValueError, match=f"^{packed.__name__}: {error}$"):
            packed(*inputs(5, 6), cu_seqlens, **options)
    with pytest.raises(ValueError, match=r"^packed_flash_attention: tile must be \(queries, keys\), both >= 1, got 3$"):
        packed_flash_attention(*inputs(5, 5), [0, 5], tile=3)
