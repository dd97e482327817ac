"""Flash-decoding: keys split in any number of parts, or over ranks, give what decoding gives."""

from functools import partial, reduce

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

import tinydist
from tinydist.attention import GroupedQueryAttention, KVCache, LatentAttention, LatentCache, attention, flash_decoding
from tinydist.attention.flash_decoding import split
from tinydist.attention.online_softmax import SoftmaxState, finish, merge, part

DOUBLE = dict(rtol=0, atol=1e-12)


def random(*shape, seed=1):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def inputs(T, S, dtype=torch.float64):
    return [random(2, heads, n, e, seed=e).to(dtype) for heads, n, e in ((6, T, 3), (2, S, 3), (2, S, 5))]


@given(st.integers(1, 4), st.integers(1, 40), st.integers(1, 50), st.booleans(), st.none() | st.integers(1, 45))
def test_any_number_of_splits_gives_attention(T, S, splits, causal, window):
    q, k, v = (each.requires_grad_() for each in inputs(T, S))
    options = dict(causal=causal, window=window, scale=0.7)
    expected, found = attention(q, k, v, **options), flash_decoding(q, k, v, splits=splits, **options)
    torch.testing.assert_close(found, expected, **DOUBLE)
    ours, theirs = (torch.autograd.grad(out.square().sum(), (q, k, v)) for out in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


def test_of_no_keys_zeros():
    assert flash_decoding(*inputs(2, 0)).eq(torch.zeros(2, 6, 2, 5)).all()


@given(st.integers(0, 20), st.integers(0, 40), st.integers(1, 50))
def test_each_key_is_in_one_split_and_they_are_equal_but_for_one_key(start, length, splits):
    found = split(slice(start, start + length), splits)
    assert [key for each in found for key in range(each.start, each.stop)] == list(range(start, start + length))
    lengths = [each.stop - each.start for each in found]
    assert len(found) == min(splits, length) and (not found or max(lengths) - min(lengths) <= 1)


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("lengths", [[5, 5], [5, 2]])
def test_decoding_through_caches(splits, lengths):
    """Of keys and values, and of latents."""
    attend, x = partial(flash_decoding, splits=splits), random(2, 6, 24)
    for make, cache in (
        (partial(GroupedQueryAttention, 24, 6, 2, rotary=100.0), partial(KVCache, 2, 2, 8, 4)),
        (partial(LatentAttention, 24, 6, latent=8, rotary_dim=4, head_dim=4), partial(LatentCache, 2, 8, 8, 4)),
    ):
        found = []
        for each in (attention, attend):
            torch.manual_seed(0)
            layer, past = make(attend=each).double(), cache(dtype=torch.float64)
            layer(x[:, :5], cache=past, counts=lengths)
            found.append(layer(x[:, 5:], cache=past))
        torch.testing.assert_close(*found, **DOUBLE)


def test_keys_that_lie_on_different_ranks():
    """Each rank sends what it found of its keys, and no key."""
    q, k, v = random(1, 3, seed=2), random(11, 3), random(11, 5, seed=3)

    def program():
        mine = split(slice(0, 11), 4)[dist.get_rank()]
        found = torch.cat(part(q @ k[mine].T / 3**0.5, v[mine]), dim=1)  # [1, 2 + e]
        of_all = [torch.empty_like(found) for _ in range(4)]
        dist.all_gather(of_all, found)
        return finish(reduce(merge, (SoftmaxState(*each.split([1, 1, 5], dim=1)) for each in of_all)))[0]

    expected = attention(*(each[None, None] for each in (q, k, v)))[0, 0]
    for found in tinydist.launch(program, 4).results:
        torch.testing.assert_close(found, expected, **DOUBLE)


def test_16_bits_add_up_in_32():
    q, k, v = inputs(1, 500, torch.bfloat16)
    exact = attention(q.double(), k.double(), v.double())
    found = flash_decoding(q, k, v, splits=16)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, exact.bfloat16(), rtol=2**-7, atol=1e-6)  # one rounding, at the end
    with torch.autocast("cpu", torch.bfloat16):
        found = flash_decoding(q.float(), k.float(), v.float(), splits=16)
    torch.testing.assert_close(found, exact.float(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("splits", [0, 2.5, True])
def test_errors(splits):
    with pytest.raises(ValueError, match=rf"^flash_decoding: splits must be an integer >= 1, got {splits}$"):
        flash_decoding(*inputs(1, 5), splits=splits)
