"""Torch's own attention with our arguments: what ours gives."""

import pytest
import torch

from tinydist.attention import attention, fused_attention


@pytest.mark.parametrize("dtype, close", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("past", [None, [4, 4], [4, 0]])
@pytest.mark.parametrize("window", [None, 3])
def test_it_gives_what_attention_gives(dtype, close, groups, past, window):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(2, heads, n, 4, dtype=dtype, generator=generator) for heads, n in ((6, 3), *[(groups, 7)] * 2)
    )
    options = dict(causal=True, window=window, past=past, scale=0.7)
    torch.testing.assert_close(fused_attention(q, k, v, **options), attention(q, k, v, **options), rtol=0, atol=close)


def test_without_a_mask_all_see_all():
    q, k, v = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(fused_attention(q, k, v), attention(q, k, v), rtol=0, atol=1e-12)


def test_errors_are_those_of_attention():
    with pytest.raises(ValueError, match=r"^fused_attention: takes \[batch, heads, tokens, head dim\], got q \[2\], "):
        fused_attention(*torch.ones(3, 2))
