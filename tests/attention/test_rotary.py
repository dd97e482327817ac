"""Rotary embedding: products depend on distances alone, lengths on nothing; YaRN as its paper and code have it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinydist.attention import GroupedQueryAttention, KVCache, Yarn, attention, rotate
from tinydist.attention.rotary import frequencies, score_scale

positions = st.integers(0, 10_000)


def random(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def at(x, position):
    return rotate(x.view(1, 1, 1, -1), torch.tensor([position])).flatten()


def test_pairs_are_complex_numbers_that_turn():
    x = random(2, 3, 5, 8)
    turns = torch.polar(
        torch.ones(5, 4, dtype=torch.float64),
        torch.outer(torch.arange(5.0, dtype=torch.float64), 10_000 ** (-torch.arange(4, dtype=torch.float64) / 4)),
    )
    expected = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (4, 2))) * turns).flatten(-2)
    torch.testing.assert_close(rotate(x, torch.arange(5)), expected, rtol=0, atol=1e-12)


@given(positions, positions, positions)
def test_products_depend_on_the_distance(p, j, shift):
    q, k = random(8, seed=1), random(8, seed=2)
    here, there = at(q, p) @ at(k, j), at(q, p + shift) @ at(k, j + shift)
    torch.testing.assert_close(here, there, rtol=0, atol=1e-9)


@given(positions)
def test_lengths_stay(p):
    x = random(8)
    torch.testing.assert_close(at(x, p).norm(), x.norm(), rtol=1e-12, atol=0)
    assert torch.equal(at(x, 0), x)


def test_each_sequence_may_stand_elsewhere():
    x = random(2, 3, 4, 6)
    starts = torch.tensor([0, 7])
    together = rotate(x, starts[:, None] + torch.arange(4))
    for row, start in enumerate(starts):
        assert torch.equal(together[row], rotate(x[row : row + 1], start + torch.arange(4))[0])


def test_half_precision_keeps_its_dtype_but_not_its_angles():
    x = random(1, 1, 1, 8)
    turned = rotate(x.half(), torch.tensor([4097]))  # 4097 is no number of float16
    assert turned.dtype == torch.float16
    torch.testing.assert_close(turned.double(), rotate(x, torch.tensor([4097])), rtol=0, atol=2e-3)


def test_an_odd_head_dim_has_no_pairs():
    with pytest.raises(ValueError, match=r"^rotate: head_dim must be even, got 5$"):
        rotate(torch.ones(1, 1, 2, 5), torch.arange(2))


# YaRN.


@pytest.mark.parametrize(
    "dim, factor, context, base", [(64, 40, 4096, 10_000.0), (128, 4, 32_768, 1e6), (8, 2, 64, 100.0)]
)
def test_yarn_is_transformers_own(dim, factor, context, base):
    theirs = pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    options = dict(rope_type="yarn", rope_theta=base, factor=factor, original_max_position_embeddings=context)
    sizes = dict(hidden_size=2 * dim, num_attention_heads=2, max_position_embeddings=factor * context)
    config = theirs.LlamaConfig(**sizes, rope_parameters=options)
    turns, of_each = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")  # they multiply queries and keys by the latter
    yarn = Yarn(factor, context, base)
    torch.testing.assert_close(frequencies(dim, yarn), turns, rtol=1e-5, atol=0)
    assert yarn.sharpening == pytest.approx(of_each**2)


@given(st.sampled_from([16, 64, 128]), st.integers(2, 64), st.sampled_from([512, 4096, 8192]))
def test_yarn_keeps_fast_pairs_and_slows_the_others_as_the_paper_says(dim, factor, context):
    plain, found = (frequencies(dim, base, torch.float64) for base in (10_000.0, Yarn(factor, context)))
    turns, ratio = context * plain / (2 * math.pi), found / plain
    assert ratio.diff().le(1e-12).all()
    step = 10_000 ** (2 / dim)  # from one pair to the next: the code's mix begins and ends with a pair, not between two
    assert ratio[turns > 32 * step].eq(1).all()
    torch.testing.assert_close(ratio[turns < 1 / step], torch.full_like(ratio[turns < 1 / step], 1 / factor))


def test_yarn_of_a_factor_of_1_changes_nothing():
    torch.testing.assert_close(frequencies(64, Yarn(1)), frequencies(64, 10_000.0), rtol=1e-6, atol=0)
    assert score_scale(64, Yarn(1)) == score_scale(64, 10_000.0) == 1 / 8


def test_yarn_has_seen_the_slow_angles_of_the_longer_text():
    slow = frequencies(64, 10_000.0)[-1], frequencies(64, Yarn(40))[-1]
    assert slow[1] * 40 * 4096 == pytest.approx((slow[0] * 4096).item())


@pytest.mark.parametrize("cached", [False, True])
def test_heads_turn_and_sharpen_by_yarn(cached):
    torch.manual_seed(0)
    yarn, x = Yarn(8, 16), random(1, 6, 24)
    layer = GroupedQueryAttention(24, 3, rotary=yarn).double()
    q, k, v = (each(x).unflatten(2, (3, 8)).transpose(1, 2) for each in (layer.query, layer.key, layer.value))
    q, k = (rotate(each, torch.arange(6), yarn) for each in (q, k))
    mixed = attention(q, k, v, causal=True, scale=(0.1 * math.log(8) + 1) ** 2 / math.sqrt(8))
    options = dict(cache=KVCache(1, 3, 6, 8, torch.float64)) if cached else dict(causal=True)
    torch.testing.assert_close(layer(x, **options), layer.out(mixed.transpose(1, 2).flatten(2)), rtol=0, atol=1e-12)


def test_yarns_fast_pairs_are_faster_than_its_slow_ones():
    with pytest.raises(ValueError, match=r"^Yarn: fast \(1\) must be > slow \(1\), both in rotations$"):
        Yarn(4, fast=1)
    with pytest.raises(ValueError, match=r"^rotate: base must be a finite number > 0 or a Yarn, got 0$"):
        rotate(torch.ones(1, 1, 2, 4), torch.arange(2), base=0)
