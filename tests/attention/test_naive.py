"""Naive attention: torch's own, for every mask and odd sizes; and zeros where there is nothing to see."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import tinydist
from tinydist.attention import AttentionMask, attention, safe_softmax

DOUBLE = dict(rtol=0, atol=1e-12)
FLOAT = 4  # bytes


def inputs(T, S, heads, groups, dim=5, value_dim=None, batch=2, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    shapes = (heads, T, dim), (groups, S, dim), (groups, S, value_dim or dim)
    return [torch.randn(batch, *shape, dtype=dtype).requires_grad_() for shape in shapes]


def gradients(out, tensors):
    torch.manual_seed(1)
    return torch.autograd.grad(out, tensors, torch.randn_like(out))


def assert_same(ours, theirs, tensors):
    torch.testing.assert_close(ours, theirs, **DOUBLE)
    torch.testing.assert_close(gradients(ours, tensors), gradients(theirs, tensors), **DOUBLE)


@pytest.mark.parametrize("heads, groups", [(1, 1), (4, 4), (6, 2), (6, 3), (5, 1)])
@pytest.mark.parametrize("T, S", [(1, 1), (7, 7), (1, 9), (5, 11)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_equals_torch(T, S, heads, groups, causal, window):
    q, k, v = inputs(T, S, heads, groups)
    visible = AttentionMask(T, S, causal, window).visible(slice(0, T), slice(0, S))
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=True)
    assert_same(attention(q, k, v, causal=causal, window=window), theirs, (q, k, v))


def test_equals_torchs_causal_for_as_many_queries_as_keys():
    q, k, v = inputs(9, 9, 4, 2)
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    assert_same(attention(q, k, v, causal=True), theirs, (q, k, v))


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (5, 1), (6, 5, 7), (2, 1, 1, 7), (2, 6, 5, 7), (7,)])
def test_equals_torch_for_any_mask(shape):
    q, k, v = inputs(5, 7, 6, 3)
    mask = torch.rand(shape) < 0.7
    mask[..., 0] = True  # each sees something
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(2, 6, 5, 7), enable_gqa=True)
    assert_same(attention(q, k, v, mask=mask), theirs, (q, k, v))


def test_a_mask_hides_more_than_causal_does():
    q, k, v = inputs(4, 4, 2, 2)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[:, 1] = False
    theirs = attention(q, k, v, mask=mask & torch.ones(4, 4).tril().bool())
    assert torch.equal(attention(q, k, v, mask=mask, causal=True), theirs)


def test_scale_and_a_value_dim_of_its_own():
    q, k, v = inputs(5, 7, 4, 2, value_dim=3)
    theirs = F.scaled_dot_product_attention(q, k, v, scale=0.1, enable_gqa=True)
    assert theirs.shape == (2, 4, 5, 3)
    assert_same(attention(q, k, v, scale=0.1), theirs, (q, k, v))


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6))
def test_groups_are_repeated_heads(groups, size, T, S):
    q, k, v = inputs(T, S, groups * size, groups)
    repeated = attention(q, k.repeat_interleave(size, dim=1), v.repeat_interleave(size, dim=1))
    torch.testing.assert_close(attention(q, k, v), repeated, **DOUBLE)


def test_a_query_that_sees_nothing_gets_zeros_and_gives_none():
    q, k, v = inputs(5, 3, 2, 1)
    out = attention(q, k, v, causal=True)  # the first two queries come before all keys
    assert out[:, :, :2].eq(0).all() and out[:, :, 2:].ne(0).all()
    of_q, *others = gradients(out, (q, k, v))
    assert of_q[:, :, :2].eq(0).all()
    assert all(each.isfinite().all() for each in (of_q, *others))


@pytest.mark.parametrize("T, S, batch", [(0, 3, 2), (3, 0, 2), (0, 0, 2), (3, 3, 0)])
def test_empty_sequences_give_zeros(T, S, batch):
    q, k, v = inputs(T, S, 4, 2, batch=batch)
    out = attention(q, k, v)
    assert out.shape == (batch, 4, T, 5) and out.eq(0).all()
    assert all(each.eq(0).all() for each in torch.autograd.grad(out.sum(), (q, k)))


@pytest.mark.parametrize("dtype, score", [(torch.float32, 1e4), (torch.float16, 6e4), (torch.float64, 1e300)])
def test_softmax_does_not_overflow(dtype, score):
    scores = torch.tensor([[score, score, -score], [-score, -math.inf, -math.inf]], dtype=dtype)
    assert safe_softmax(scores).tolist() == [[0.5, 0.5, 0], [1, 0, 0]]


@given(st.lists(st.lists(st.floats(-500, 500), min_size=4, max_size=4), min_size=1, max_size=4))
def test_softmax_is_torchs(rows):
    scores = torch.tensor(rows, dtype=torch.float64)
    torch.testing.assert_close(safe_softmax(scores), scores.softmax(-1), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_keys_and_values_are_not_copied(groups):
    """Of a decode step, the ledger sees what is computed: scores in four steps of softmax, and the output."""
    heads, S, d = 8, 1000, 16

    def program():
        q, k, v = torch.ones(1, heads, 1, d), torch.ones(1, groups, S, d), torch.ones(1, groups, S, d)
        with torch.no_grad():
            attention(q, k, v)

    held = (heads * d + 2 * groups * S * d) * FLOAT
    scores = heads * S * FLOAT
    assert held + 2 * scores <= tinydist.launch(program, 1).memory[0].peak <= held + 3 * scores + 1000


def test_errors():
    q, k, v = inputs(5, 7, 4, 2)
    with pytest.raises(ValueError, match=r"^attention: num_heads \(4\) must be divisible by num_kv_heads \(3\)"):
        attention(q, *(torch.randn(2, 3, 7, 5, dtype=torch.float64),) * 2)
    with pytest.raises(
        TypeError, match=r"^attention: mask must be bool, True where a query attends to a key, got torch.fl"
    ):
        attention(q, k, v, mask=torch.zeros(5, 7))
    with pytest.raises(ValueError, match=r"^attention: mask \[7, 5\] does not broadcast to .* = \[2, 4, 5, 7\]$"):
        attention(q, k, v, mask=torch.ones(7, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"^attention: mask \[1, 1, 1, 5, 7\] does not broadcast"):
        attention(q, k, v, mask=torch.ones(1, 1, 1, 5, 7, dtype=torch.bool))
