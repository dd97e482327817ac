"""Flash attention: the naive one, forward and backward, for all lengths and options; in memory that grows with N."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import tinydist
from tinydist.attention import AttentionMask, attention, flash_attention, fused_attention
from tinydist.attention.flash import flash_forward

DOUBLE = dict(rtol=0, atol=1e-10)
lengths, tile_sizes = st.integers(1, 300), st.integers(40, 150)


def inputs(T, S, heads=2, groups=1, dim=8, value_dim=None, batch=1, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (heads, T, dim), (groups, S, dim), (groups, S, value_dim or dim)
    return [
        torch.randn(batch, *each, dtype=torch.float64, generator=generator).to(dtype).requires_grad_()
        for each in shapes
    ]


def gradients(out, tensors):
    return torch.autograd.grad(
        out, tensors, torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out).to(out)
    )


def assert_exact(tensors, tile, **options):
    naive, flash = attention(*tensors, **options), flash_attention(*tensors, tile=tile, **options)
    torch.testing.assert_close(flash, naive, **DOUBLE)
    torch.testing.assert_close(gradients(flash, tensors), gradients(naive, tensors), **DOUBLE)


@given(
    lengths,
    lengths,
    st.sampled_from([(1, 1), (3, 3), (4, 2), (6, 1)]),
    st.booleans(),
    st.none() | st.integers(1, 320),
    st.tuples(tile_sizes, tile_sizes),
    st.integers(0, 100),
)
def test_forward_and_backward_equal_naive(T, S, heads, causal, window, tile, seed):
    assert_exact(inputs(T, S, *heads, seed=seed), tile, causal=causal, window=window)


@given(st.integers(1, 12), st.integers(1, 12), st.booleans(), st.none() | st.integers(1, 14),
       st.tuples(st.integers(1, 13), st.integers(1, 13)))  # fmt: skip
def test_tiles_down_to_one_by_one(T, S, causal, window, tile):
    assert_exact(inputs(T, S, 4, 2, value_dim=3, batch=2), tile, causal=causal, window=window, scale=0.7)


@pytest.mark.parametrize("causal, window", [(False, None), (True, None), (False, 3), (True, 3)])
@pytest.mark.parametrize("T, S", [(5, 5), (3, 7), (7, 3)])
def test_gradcheck(T, S, causal, window):
    tensors = inputs(T, S, heads=4, groups=2, dim=2)
    assert torch.autograd.gradcheck(lambda *x: flash_attention(*x, causal=causal, window=window, tile=(2, 3)), tensors)


@pytest.mark.parametrize("causal", [False, True])
def test_equals_torch(causal):
    q, k, v = inputs(77, 77, 4, 2)
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    ours = flash_attention(q, k, v, causal=causal, tile=(32, 16))
    torch.testing.assert_close(ours, theirs, **DOUBLE)
    torch.testing.assert_close(gradients(ours, (q, k, v)), gradients(theirs, (q, k, v)), **DOUBLE)


def test_the_tile_does_not_matter():
    tensors = inputs(50, 60)
    results = [flash_attention(*tensors, causal=True, tile=tile) for tile in [(1, 60), (50, 1), (7, 9), (128, 128)]]
    for each in results[1:]:
        torch.testing.assert_close(each, results[0], rtol=0, atol=1e-14)


def test_log_sum_exp():
    q, k, v = inputs(6, 4, dim=2)
    _, lse = flash_forward(q, k, v, AttentionMask(6, 4, causal=True), 1.0, (4, 3))
    visible = AttentionMask(6, 4, causal=True).visible(slice(0, 6), slice(0, 4))
    expected = (q @ k.mT).masked_fill(~visible, -math.inf).logsumexp(-1, keepdim=True)
    torch.testing.assert_close(lse, expected, rtol=0, atol=1e-14)
    assert lse[:, :, :2].eq(-math.inf).all()


# Precision.


def plain(q, k, v, visible):
    """What one writes without thinking of memory, in the precision of q."""
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~visible, -math.inf)
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("T, S", [(113, 203), (256, 256), (1, 300)])
def test_errors_in_half_precision_are_not_above_those_of_plain_attention(dtype, causal, T, S):
    """FlashAttention's own tolerances: against float32, 2 times the error of plain attention, 3 times for gradients."""
    tensors = inputs(T, S, heads=2, groups=2, dim=32, batch=2, dtype=dtype)
    wide = [each.detach().float().requires_grad_() for each in tensors]
    visible = torch.ones(T, S).tril(S - T).bool() if causal else torch.ones(T, S).bool()
    exact, lossy = plain(*wide, visible), plain(*tensors, visible)
    ours = flash_attention(*tensors, causal=causal, tile=(64, 48))
    assert ours.dtype == dtype
    assert (ours - exact).abs().max() <= 2 * (lossy - exact).abs().max()
    for mine, theirs, true in zip(*(gradients(*each) for each in ((ours, tensors), (lossy, tensors), (exact, wide)))):
        assert mine.dtype == dtype
        assert (mine - true).abs().max() <= 3 * (theirs - true).abs().max()


def test_torchs_autocast_does_not_reach_into_the_tiles():
    tensors = inputs(70, 90, dtype=torch.bfloat16)
    outside = flash_attention(*tensors)
    with torch.autocast("cpu", torch.bfloat16):
        inside = flash_attention(*tensors)
        found = gradients(inside, tensors)
    assert torch.equal(inside, outside)
    assert all(map(torch.equal, found, gradients(outside, tensors)))


def test_it_is_exact_and_not_approximate():
    """In float32, against float64: no worse than naive attention in float32, up to the luck of rounding."""
    tensors = inputs(300, 300, dim=32)
    exact = attention(*tensors)
    errors = [(f(*(x.float() for x in tensors)) - exact).abs().max().item() for f in (flash_attention, attention)]
    assert errors[0] <= 1.5 * errors[1] < 1e-5


# Memory.


def peak(program, N, **options):
    """Bytes above the inputs. One head of 16 numbers a token."""

    def step():
        q, k, v = (torch.zeros(1, 1, N, 16, requires_grad=True) for _ in range(3))
        program(q, k, v, **options).sum().backward()

    return tinydist.launch(step, 1, fake=True).memory[0].peak


@pytest.mark.parametrize("lengths", [(1024, 4096), pytest.param((1024, 16384), marks=pytest.mark.exhaustive)])
def test_memory_is_a_line_from_1k_to_16k(lengths):
    """q, k, v, the output, three gradients; log-sum-exp, a copy of it, delta. Tiles are as large for all lengths."""
    peaks = [peak(flash_attention, N, causal=True, tile=(1024, 512)) for N in lengths]
    a_token = (7 * 16 + 3) * 4
    assert [here - peaks[0] for here in peaks] == [(N - 1024) * a_token for N in lengths]


def test_memory_of_naive_is_its_square():
    small, large = (peak(attention, N) for N in (1024, 4096))
    assert 15 < large / small < 17
    assert peak(flash_attention, 4096, tile=(512, 512)) < large / 30


def test_without_gradients_only_the_output_is_held():
    def program():
        q, k, v = (torch.zeros(1, 1, 4096, 16) for _ in range(3))
        with torch.no_grad():
            flash_attention(q, k, v, tile=(512, 512))

    in_and_out, of_a_tile = (4 * 16 + 1) * 4096 * 4, 4 * 512 * 512 * 4
    assert in_and_out < tinydist.launch(program, 1, fake=True).memory[0].peak < in_and_out + of_a_tile


def test_tiles_outside_the_band_are_not_computed():
    """Counted in FLOPs: causal is a half and the diagonal, a window a stripe."""

    def flops(**options):
        with FlopCounterMode(display=False) as counter:
            flash_attention(*inputs(256, 256, 1, 1), tile=(16, 16), **options).sum().backward()
        return counter.get_total_flops() / 256**2 / 8

    assert flops() == 4 + 10
    assert flops(causal=True) == (4 + 10) * (16 * 17 / 2) / 16**2
    assert flops(causal=True, window=17) == (4 + 10) * (16 + 15) / 16**2


# What is not there, and what does not fit.


@pytest.mark.parametrize("T, S, batch", [(0, 3, 1), (3, 0, 1), (0, 0, 1), (3, 3, 0)])
@pytest.mark.parametrize("causal", [False, True])
def test_empty_sequences_give_zeros(T, S, batch, causal):
    tensors = inputs(T, S, 4, 2, batch=batch)
    out = flash_attention(*tensors, causal=causal)
    assert out.shape == (batch, 4, T, 8) and out.eq(0).all()
    assert all(each.eq(0).all() for each in torch.autograd.grad(out.sum(), tensors) if batch == 0 or not (T and S))


def test_a_query_that_sees_nothing_gets_zeros_and_gives_none():
    tensors = inputs(9, 4)
    out = flash_attention(*tensors, causal=True, tile=(4, 4))
    assert out[:, :, :5].eq(0).all() and out[:, :, 5:].ne(0).all()
    of_q, *others = gradients(out, tensors)
    assert of_q[:, :, :5].eq(0).all()
    assert all(each.isfinite().all() for each in (of_q, *others))


def test_layouts_that_are_not_contiguous():
    q, k, v = (
        each.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for each in inputs(20, 30, 4, 2)
    )
    assert_exact((q, k, v), (8, 8), causal=True)


@pytest.mark.parametrize("tile", [(0, 4), (4,), 64, (4, -1)])
def test_a_tile_is_two_sizes(tile):
    with pytest.raises(ValueError, match=r"^flash_attention: tile must be \(queries, keys\), both >= 1, got"):
        flash_attention(*inputs(3, 3), tile=tile)


def test_errors():
    q, k, _ = inputs(3, 3)
    with pytest.raises(ValueError, match=r"^flash_attention: num_heads \(2\) must be divisible by num_kv_heads \(3\)"):
        flash_attention(q, *(torch.ones(1, 3, 3, 8).double(),) * 2)
    with pytest.raises(ValueError, match=r"^attention: window must be an integer >= 1, or None, got 0$"):
        flash_attention(q, k, k, window=0)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        out = flash_attention(*(tensors := inputs(3, 3)))
        (gradient, *_) = torch.autograd.grad(out.square().sum(), tensors, create_graph=True)
        gradient.sum().backward()


# Torch's own kernel.


@pytest.mark.parametrize("dtype, close", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("offset", [None, [4, 4], [4, 0]])
@pytest.mark.parametrize("window", [None, 3])
def test_torchs_own_gives_what_attention_gives(dtype, close, groups, offset, window):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(2, heads, n, 4, dtype=dtype, generator=generator) for heads, n in ((6, 3), *[(groups, 7)] * 2)
    )
    options = dict(causal=True, window=window, offset=offset, scale=0.7)
    torch.testing.assert_close(fused_attention(q, k, v, **options), attention(q, k, v, **options), rtol=0, atol=close)


def test_torchs_own_without_a_mask():
    q, k, v = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(fused_attention(q, k, v), attention(q, k, v), rtol=0, atol=1e-12)


def test_errors_of_torchs_own_are_those_of_attention():
    with pytest.raises(
        ValueError, match=r"^fused_attention: q, k and v must be \[batch, heads, tokens, head_dim\], got q \[2\], "
    ):
        fused_attention(*torch.ones(3, 2))
