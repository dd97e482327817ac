"""Ring, all-gather, Ulysses and both together are attention on one rank, forward and backward."""

import pytest
import torch
from context_parallel.sequences import WAYS, alone, hybrid, inputs, on_ranks, sharded
from hypothesis import given, settings
from hypothesis import strategies as st
from sampled import sampled
from tiny_training import assert_every_rank_has

import tinydist
from tinydist.context_parallel import ring_attention

RANKS = (1, 2, 3, 4, 8)
CASES = [(way, ranks) for way in WAYS for ranks in RANKS]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("way, ranks", sampled([(way, ranks) for way in WAYS for ranks in (1, 3, 8)], CASES))
def test_equals_one_rank(way, ranks, balanced, causal):
    """29 tokens: parts are uneven."""
    tensors = inputs(29)
    found = on_ranks(sharded, ranks, WAYS[way], tensors, causal, balanced)
    assert_every_rank_has(alone(tensors, causal=causal), found, atol=1e-10)


@pytest.mark.parametrize("groups", [1, 2, 12])
@pytest.mark.parametrize("way", WAYS)
def test_grouped_heads(way, groups):
    """With 1 and 2 KV heads on 4 ranks, Ulysses sends each to the 4 and 2 ranks that read it."""
    tensors = inputs(26, groups=groups)
    found = on_ranks(sharded, 4, WAYS[way], tensors)
    assert_every_rank_has(alone(tensors, causal=True), found, atol=1e-10)


@settings(max_examples=15)
@given(st.sampled_from(list(WAYS)), st.integers(1, 6), st.integers(0, 30), st.booleans(), st.booleans())
def test_all_lengths(way, ranks, more, causal, balanced):
    """From one token a rank on, where some chunks are empty."""
    tensors = inputs(ranks + more, heads=60, groups=60, dim=2, batch=1)
    found = on_ranks(sharded, ranks, WAYS[way], tensors, causal, balanced)
    assert_every_rank_has(alone(tensors, causal=causal), found, atol=1e-10)


@pytest.mark.parametrize("across", [1, 2, 4])
@pytest.mark.parametrize("tokens, causal, balanced", [(32, True, True), (37, True, True), (37, False, False)])
def test_ulysses_in_a_ring(across, tokens, causal, balanced):
    tensors = inputs(tokens, groups=4)
    found = on_ranks(hybrid, 4, tensors, across, causal, balanced)
    assert_every_rank_has(alone(tensors, causal=causal), found, atol=1e-10)


@pytest.mark.parametrize("way", WAYS)
def test_in_float32_within_the_rounding_of_its_sums(way):
    """An output is a mean of T values whose weights have rounded scores: (T + 2 d |q||k|/sqrt d) eps max |v|, and a
    gradient is a sum of T such products. Doubles of the same numbers are the measure."""
    T, d = 48, 4
    tensors = inputs(T, dtype=torch.float32)
    doubles = [each.detach().double().requires_grad_() for each in tensors]
    q, k, v = (each.detach().abs().max().item() for each in doubles)
    bound = (T + 2 * d**0.5 * q * k * d) * torch.finfo(torch.float32).eps * v
    exact = alone(doubles, causal=True)
    for found in on_ranks(sharded, 4, WAYS[way], tensors):
        for mine, wanted, terms in zip(found, exact, (1, T, T, T)):
            assert mine.dtype == torch.float32
            assert (mine - wanted).abs().max() <= terms * bound


def test_in_bfloat16_each_block_is_rounded_once():
    tensors = inputs(48, dtype=torch.bfloat16)
    exact = alone([each.detach().double().requires_grad_() for each in tensors], causal=True)
    for out, *gradients in on_ranks(sharded, 4, ring_attention, tensors):
        largest = tensors[2].abs().max()
        assert (out - exact[0]).abs().max() <= 2 * torch.finfo(torch.bfloat16).eps * largest
        assert all(each.dtype == torch.bfloat16 for each in gradients)


def test_scale_and_no_gradient():
    def program(tensors):
        return sharded(lambda *qkv, **options: ring_attention(*qkv, scale=0.3, **options), tensors)

    tensors = inputs(16)
    assert_every_rank_has(alone(tensors, causal=True, scale=0.3), on_ranks(program, 2, tensors), atol=1e-10)


@pytest.mark.parametrize("way", WAYS)
def test_in_any_order_of_the_ranks(way):
    tensors = inputs(29)
    runs = [
        tinydist.launch(sharded, 3, WAYS[way], tensors, schedule="shuffle", seed=seed, observe=False).results
        for seed in range(2)
    ]
    assert_every_rank_has(runs[0][0], runs[1], atol=0)


@pytest.mark.parametrize("way", sampled(["ring"], WAYS))
def test_on_processes(way):
    tensors = inputs(13, heads=4, groups=2)
    found = tinydist.launch(sharded, 2, WAYS[way], tensors, backend="gloo").results
    assert_every_rank_has(alone(tensors, causal=True), found, atol=1e-10)
