"""Heads: MHA, GQA and MQA are one module; torch's MultiheadAttention is its equal."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tinydist.attention import GroupedQueryAttention, KVCache, attention, flash_attention

DOUBLE = dict(rtol=0, atol=1e-12)


def module(dim=24, heads=6, kv_heads=None, **options):
    torch.manual_seed(0)
    return GroupedQueryAttention(dim, heads, kv_heads, **options).double()


def random(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def as_torchs(ours):
    """nn.MultiheadAttention with the same weights."""
    theirs = nn.MultiheadAttention(ours.query.in_features, ours.heads, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    return theirs


@pytest.mark.parametrize("heads, tokens", [(1, 1), (2, 5), (3, 7), (6, 4), (24, 3)])
@pytest.mark.parametrize("mask", ["none", "causal", "random"])
def test_multi_head_is_torchs_own(heads, tokens, mask):
    ours, x = module(heads=heads, bias=True), random(2, tokens, 24)
    visible = {"none": None, "causal": random(tokens, tokens).tril().bool(), "random": random(tokens, tokens) > -0.5}[
        mask
    ]
    if visible is not None:
        visible.fill_diagonal_(True)
    theirs = as_torchs(ours)
    expected, _ = theirs(x, x, x, attn_mask=None if visible is None else ~visible, need_weights=False)
    found = ours(x, causal=True) if mask == "causal" else ours(x, mask=visible)
    torch.testing.assert_close(found, expected, **DOUBLE)
    expected.square().sum().backward()
    found.square().sum().backward()
    torch.testing.assert_close(ours.out.weight.grad, theirs.out_proj.weight.grad, rtol=1e-12, atol=1e-12)
    ours_in = torch.cat([each.weight.grad for each in (ours.query, ours.key, ours.value)])
    torch.testing.assert_close(ours_in, theirs.in_proj_weight.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_is_torchs_enable_gqa(kv_heads, causal):
    ours, x = module(kv_heads=kv_heads), random(2, 7, 24)
    q, k, v = (layer(x).unflatten(2, (-1, 4)).transpose(1, 2) for layer in (ours.query, ours.key, ours.value))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    torch.testing.assert_close(ours(x, causal=causal), ours.out(mixed.transpose(1, 2).flatten(2)), **DOUBLE)


@pytest.mark.parametrize("kv_heads", [1, 2, 3])
def test_grouped_is_multi_head_with_heads_repeated(kv_heads):
    ours, x = module(kv_heads=kv_heads), random(2, 5, 24)
    multi_head = module()
    state = ours.state_dict()
    for name in ("key.weight", "value.weight"):
        state[name] = state[name].unflatten(0, (kv_heads, 4)).repeat_interleave(6 // kv_heads, dim=0).flatten(0, 1)
    multi_head.load_state_dict(state)
    torch.testing.assert_close(ours(x), multi_head(x), **DOUBLE)


def test_as_many_groups_as_heads_is_the_default():
    assert torch.equal(module()(random(1, 5, 24)), module(kv_heads=6)(random(1, 5, 24)))
    assert module().key.weight.shape == (24, 24)
    assert module(kv_heads=1).key.weight.shape == (4, 24)


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"causal": True, "window": 3}])
def test_flash_attends_alike(kv_heads, options):
    x = random(2, 9, 24)
    naive, flash = (module(kv_heads=kv_heads, rotary=100.0, attend=each) for each in (attention, flash_attention))
    torch.testing.assert_close(flash(x, **options), naive(x, **options), **DOUBLE)


def test_rotary_tells_positions_apart():
    x = random(1, 3, 24)
    x[:, 1] = x[:, 0]  # the same token twice: who sees all of it cannot tell which is which
    assert torch.allclose(*module()(x)[0, :2])
    assert not torch.allclose(*module(rotary=100.0)(x)[0, :2])


# What does not fit.


@pytest.mark.parametrize(
    "make, error",
    [
        (lambda: module(24, 6, 4), r"GroupedQueryAttention: num_heads \(6\) must be divisible by num_kv_heads \(4\)"),
        (lambda: module(24, 6, 0), r"GroupedQueryAttention: num_heads \(6\) must be divisible by num_kv_heads \(0\)"),
        (lambda: module(24, 5), r"GroupedQueryAttention: dim \(24\) must be divisible by heads \(5\)"),
        (lambda: module()(random(5, 24)), r"GroupedQueryAttention: takes \[batch, tokens, 24\], got \[5, 24\]"),
        (lambda: module()(random(1, 5, 12)), r"GroupedQueryAttention: takes \[batch, tokens, 24\], got \[1, 5, 12\]"),
        (lambda: module()(random(1, 5, 24), counts=[3]), r"GroupedQueryAttention: counts requires a cache"),
        (
            lambda: module()(random(1, 5, 24), cache=KVCache(1, 6, 8, 4), causal=True),
            r"GroupedQueryAttention: causal cannot be passed together with a cache",
        ),
    ],
)
def test_errors(make, error):
    with pytest.raises(ValueError, match="^" + error):
        make()
