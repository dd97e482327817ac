"""The Triton kernels: compiled on a GPU, interpreted elsewhere. Skipped where there is no Triton."""

import math
import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")

from tinydist.attention import attention  # noqa: E402
from tinydist.attention.flash_triton import flash_attention_triton  # noqa: E402

TILE = (32, 16)


def inputs(T, S, heads=2, groups=1, dim=16, batch=1, dtype=torch.float32):
    generator = torch.Generator().manual_seed(T * S)
    shapes = (heads, T, dim), (groups, S, dim), (groups, S, dim)
    tensors = [torch.randn(batch, *each, generator=generator) for each in shapes]
    return [each.to(DEVICE, dtype).requires_grad_() for each in tensors]


def gradients(out, tensors):
    dout = torch.linspace(-1, 1, out.numel(), device=DEVICE).view_as(out).to(out)
    return torch.autograd.grad(out, tensors, dout)


@pytest.mark.parametrize("heads, groups", [(1, 1), (4, 2), (3, 1)])
@pytest.mark.parametrize("T, S", [(1, 1), (37, 37), (5, 40), (40, 33)])
@pytest.mark.parametrize("causal", [False, True])
def test_forward_and_backward_equal_naive(T, S, heads, groups, causal):
    tensors = inputs(T, S, heads, groups, batch=2)
    ours, theirs = flash_attention_triton(*tensors, causal=causal, tile=TILE), attention(*tensors, causal=causal)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)
    torch.testing.assert_close(gradients(ours, tensors), gradients(theirs, tensors), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("tile", [(16, 64), (64, 16)])
def test_the_tile_does_not_matter(tile):
    tensors = inputs(30, 40, dim=32)
    ours, theirs = (flash_attention_triton(*tensors, causal=True, scale=0.3, tile=each) for each in (tile, (128, 128)))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)
    torch.testing.assert_close(gradients(ours, tensors), gradients(theirs, tensors), rtol=1e-5, atol=2e-5)


def plain(q, k, v, visible):
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~visible, -math.inf)
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_errors_in_half_precision_are_not_above_those_of_plain_attention(dtype, causal):
    """FlashAttention's own tolerances: against float32, 2 times the error of plain attention, 3 times for gradients."""
    T, S = 40, 57
    tensors = inputs(T, S, 2, 2, dim=32, dtype=dtype)
    wide = [each.detach().float().requires_grad_() for each in tensors]
    visible = torch.ones(T, S, device=DEVICE).tril(S - T if causal else S).bool()
    exact, lossy = plain(*wide, visible), plain(*tensors, visible)
    ours = flash_attention_triton(*tensors, causal=causal, tile=TILE)
    assert (ours - exact).abs().max() <= 2 * (lossy - exact).abs().max()
    for mine, theirs, true in zip(*(gradients(*each) for each in ((ours, tensors), (lossy, tensors), (exact, wide)))):
        assert mine.dtype == dtype
        assert (mine - true).abs().max() <= 3 * (theirs - true).abs().max()


@pytest.mark.parametrize("T, S", [(0, 3), (3, 0), (40, 3)])
def test_queries_that_see_nothing_get_zeros(T, S):
    tensors = inputs(T, S)
    out = flash_attention_triton(*tensors, causal=True, tile=TILE)
    unseeing = max(0, T - S)
    assert out[:, :, :unseeing].eq(0).all() and out.isfinite().all()
    of_q, *others = gradients(out, tensors)
    assert of_q[:, :, :unseeing].eq(0).all()
    assert all(each.isfinite().all() for each in (of_q, *others))


def test_layouts_that_are_not_contiguous():
    q, k, v = (
        each.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for each in inputs(20, 30, 4, 2)
    )
    ours, theirs = flash_attention_triton(q, k, v, tile=TILE), attention(q, k, v)
    torch.testing.assert_close(gradients(ours, (q, k, v)), gradients(theirs, (q, k, v)), rtol=1e-5, atol=2e-5)


def test_errors():
    q, k, v = inputs(4, 4)
    with pytest.raises(ValueError, match=r"^flash_attention_triton: the head dims must be one of 16, .* got 8 of q"):
        flash_attention_triton(q[..., :8], k[..., :8], v[..., :8])
    with pytest.raises(
        ValueError, match=r"^flash_attention_triton: tile must be two powers of 2 from 16, got \(64, 24\)"
    ):
        flash_attention_triton(q, k, v, tile=(64, 24))
    with pytest.raises(
        TypeError, match=r"^flash_attention_triton: takes float16, bfloat16 or float32, got torch.float64"
    ):
        flash_attention_triton(q.double(), k.double(), v.double())
    with pytest.raises(
        ValueError, match=r"^flash_attention_triton: groups must divide the heads: 2 query heads / 3 key"
    ):
        flash_attention_triton(q, *(torch.ones(1, 3, 4, 16, device=DEVICE),) * 2)
