"""The block-sparse Triton kernel: compiled on a GPU, interpreted elsewhere. Skipped where there is no Triton."""

import random

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton", reason="Triton is not installed: make kernels")

from tinydist.attention import attention, sparse_layouts  # noqa: E402
from tinydist.attention.sparse_triton import SparseAttentionTriton, sparse_forward_triton  # noqa: E402

LAYOUTS = {
    "window": sparse_layouts.window(3)[None],
    "each head its own": torch.stack([sparse_layouts.bigbird(3, rng=random.Random(1)), sparse_layouts.fixed(3, 2)]),
    "nothing": torch.zeros(1, 3, 3, dtype=torch.bool),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_it_equals_masked_attention(name, causal):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, 48, 16, generator=generator).to(DEVICE) for heads in (2, 1, 1))
    layout = LAYOUTS[name].to(DEVICE)
    out, lse = sparse_forward_triton(q, k, v, layout, causal=causal)
    mask = layout.repeat_interleave(16, 1).repeat_interleave(16, 2)
    torch.testing.assert_close(out, attention(q, k, v, mask=mask, causal=causal), rtol=0, atol=2e-6)
    if name == "nothing":
        assert lse.lt(-1e38).all() and out.eq(0).all()


def test_absent_blocks_are_not_read():
    q, k, v = torch.randn(3, 1, 1, 48, 16, device=DEVICE)
    layout = sparse_layouts.window(3, 1).to(DEVICE)[None]
    first = sparse_forward_triton(q, k, v, layout)[0][..., :16, :]
    k[..., 16:, :] = v[..., 16:, :] = torch.nan
    assert torch.equal(sparse_forward_triton(q, k, v, layout)[0][..., :16, :], first)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_gradients_are_those_of_masked_attention(name, causal):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, 48, 16, generator=generator).to(DEVICE).requires_grad_() for heads in (2, 1, 1))
    layout, dout = LAYOUTS[name].to(DEVICE), torch.randn(2, 2, 48, 16, generator=generator).to(DEVICE)
    mask = layout.repeat_interleave(16, 1).repeat_interleave(16, 2)
    found = torch.autograd.grad(SparseAttentionTriton.apply(q, k, v, layout, causal), (q, k, v), dout)
    expected = torch.autograd.grad(attention(q, k, v, mask=mask, causal=causal), (q, k, v), dout)
    for mine, right in zip(found, expected):
        torch.testing.assert_close(mine, right, rtol=0, atol=2e-5)
