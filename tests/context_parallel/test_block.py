"""One block: a kernel with its log-sum-exp; results merge as parts of an online softmax do; its FLOPs are counted."""

import pytest
import torch
from context_parallel.sequences import inputs
from torch.utils.flop_counter import FlopCounterMode

from tinydist.attention.flash import flash_backward, flash_forward
from tinydist.attention.mask import AttentionMask
from tinydist.attention.online_softmax import finish, merge, part
from tinydist.context_parallel.block import block_backward, block_forward, fused_attention, merge_


def block(T=9, S=9, groups=2):
    q, k, v = (each.detach() for each in inputs(max(T, S), heads=4, groups=groups))
    return q[:, :, :T], k[:, :, :S], v[:, :, :S]


@pytest.mark.parametrize("causal, T, S", [(True, 9, 9), (False, 9, 4), (False, 3, 9)])
def test_the_kernel_is_what_tiles_give(causal, T, S):
    q, k, v = block(T, S)
    mask = AttentionMask(T, S, causal)
    out, lse = block_forward(q, k, v, causal, 0.5)
    expected, of_tiles = flash_forward(q, k, v, mask, 0.5, (128, 128))
    torch.testing.assert_close((out, lse[..., None]), (expected, of_tiles), rtol=0, atol=1e-12)
    dout = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    found = block_backward(dout, q, k, v, out, lse, causal, 0.5)
    tiles = flash_backward(q, k, v, expected, of_tiles, dout, mask, 0.5, (128, 128))
    torch.testing.assert_close(found, tiles, rtol=0, atol=1e-12)


def test_merging_is_that_of_an_online_softmax():
    q, k, v = block(groups=4)
    parts = [part(q @ k[:, :, each].mT, v[:, :, each]) for each in (slice(0, 4), slice(4, 9))]
    expected, lse = finish(merge(*parts))
    (first, of_first), (second, of_second) = (
        block_forward(q, k[:, :, each], v[:, :, each], False, 1.0) for each in (slice(0, 4), slice(4, 9))
    )
    merge_(first, of_first, second, of_second)
    torch.testing.assert_close((first, of_first[..., None]), (expected, lse), rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_flops(causal):
    q, k, v = block(groups=4)
    with FlopCounterMode(display=False) as forward:
        out, lse = block_forward(q, k, v, causal, 1.0)
    with FlopCounterMode(display=False) as backward:
        block_backward(out, q, k, v, out, lse, causal, 1.0)
    B, H, T, d = q.shape
    assert forward.get_total_flops() == 4 * B * H * T * T * d // (1 + causal)
    assert backward.get_total_flops() == 10 * B * H * T * T * d // (1 + causal)


def test_without_the_processors_kernel(monkeypatch):
    """Elsewhere tiles are computed."""
    from tinydist.context_parallel import block as module

    q, k, v = block()
    expected = block_forward(q, k, v, True, 1.0)
    monkeypatch.setattr(module, "FUSED", ())
    torch.testing.assert_close(block_forward(q, k, v, True, 1.0), expected, rtol=0, atol=1e-12)


def test_fused_attention_has_a_gradient_and_the_causal_half_of_the_flops():
    q, k, v = (each.requires_grad_() for each in block(groups=2))
    mask = torch.ones(9, 9, dtype=torch.bool).tril()
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    dout = torch.linspace(-1, 1, expected.numel(), dtype=q.dtype).view_as(expected)
    with FlopCounterMode(display=False) as counter:
        out = fused_attention(q, k, v)
        found = torch.autograd.grad(out, (q, k, v), dout)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found, torch.autograd.grad(expected, (q, k, v), dout), rtol=0, atol=1e-12)
    B, H, T, d = q.shape
    assert counter.get_total_flops() == 4 * B * H * T * T * d // 2 * 7 // 2
