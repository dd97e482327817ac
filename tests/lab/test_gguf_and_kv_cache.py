"""The solution of rows_for_llama_cpp gives the scores of a RoPE that rotates i with i + d/2, and llama.cpp's order."""

import pytest
import torch
from lab.registered import solved

from tinydist.attention.rotary import frequencies, rotate

SIZES = [(1, 1, 2), (4, 4, 8), (4, 2, 8), (6, 3, 4)]  # heads, kv_heads, head_dim


def weights(heads, kv_heads, head_dim):
    torch.manual_seed(0)
    return [torch.randn(n * head_dim, 24, dtype=torch.float64) for n in (heads, kv_heads, kv_heads)]


def rotate_halves(x, positions):
    """As transformers' apply_rotary_pos_emb: x [H, T, d]."""
    angle = positions[:, None] * frequencies(x.shape[-1], 10_000.0, x.dtype).repeat(2)  # [T, d]
    first, second = x.chunk(2, -1)
    return x * angle.cos() + torch.cat([-second, first], -1) * angle.sin()


def permute(weights, n_head):
    """LlamaModel.permute of ggml-org/llama.cpp at 0c1e570, conversion/llama.py."""
    return (
        weights.reshape(n_head, 2, weights.shape[0] // n_head // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), SIZES)
def test_scores_stay(heads, kv_heads, head_dim):
    query, key, value = weights(heads, kv_heads, head_dim)
    x, positions = torch.randn(5, 24, dtype=torch.float64), torch.arange(5)

    def scores(query, key, rotated):
        q, k = ((x @ each.T).unflatten(-1, (-1, head_dim)).transpose(0, 1) for each in (query, key))
        return rotated(q) @ rotated(k).repeat_interleave(heads // kv_heads, 0).mT

    found = solved("rows_for_llama_cpp")(query, key, value, heads, kv_heads)
    ours = scores(*found[:2], lambda each: rotate(each.unsqueeze(0), positions).squeeze(0))
    torch.testing.assert_close(ours, scores(query, key, lambda each: rotate_halves(each, positions)))


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), SIZES)
def test_order_is_that_of_the_converter(heads, kv_heads, head_dim):
    query, key, value = weights(heads, kv_heads, head_dim)
    found = solved("rows_for_llama_cpp")(query, key, value, heads, kv_heads)
    assert found[0].equal(permute(query, heads)) and found[1].equal(permute(key, kv_heads)) and found[2].equal(value)
