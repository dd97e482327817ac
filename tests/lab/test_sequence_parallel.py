"""The exercises of chapter 07b: their solutions are what the library's ledger counts, and what one process computes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tinydist
from tinydist.attention import Decoder, DecoderConfig
from tinydist.syllabus.registry import find
from tinydist.tensor_parallel import shard

KEPT = find("kept_by_block")
GATED = [case for case in KEPT.cases if case.arguments(0)[5] and not case.arguments(0)[6]]


def fused(q, k, v, causal=True):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def held(tokens, width, heads, kv_heads, inner, gated, parallel, ranks, sequence_parallel):
    def program():
        torch.set_default_dtype(torch.bfloat16)
        model = Decoder(DecoderConfig(64, 1, heads, kv_heads, width))
        block = model.blocks[0]
        block.gate, block.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        block.down = nn.Linear(inner, width, bias=False)
        block.attention_norm, block.mlp_norm = (nn.LayerNorm(width, bias=False) for _ in range(2))
        block.attention.attend = fused
        shard(model, sequence_parallel="save" if sequence_parallel else None)
        x = torch.empty(1, tokens, width, requires_grad=True)
        tinydist.mark("begins")
        y = block(x, causal=True)
        tinydist.mark("ends")
        return y

    run = tinydist.launch(program, ranks, backend="simulated", fake=True, only=[0])
    memory = run.memory[0]
    return memory.at("ends")["activations"] - memory.at("begins")["activations"]


@pytest.mark.parametrize("case", GATED, ids=str)
def test_a_block_keeps_what_the_ledger_counts(case):
    """Besides statistics, less than 1 %, and attention's output in the order of tokens, which GPUs need not copy."""
    tokens, width, *_, ranks, _ = case.arguments(0)
    copy = 2 * tokens * width // ranks
    if tokens > 100:  # in a toy statistics are as large as anything
        assert KEPT.right(case).returned[0] + copy == pytest.approx(held(*case.arguments(0)), rel=0.01)


@pytest.mark.parametrize("case", find("mended_copies").cases, ids=str)
def test_the_mended_step_is_that_of_one_process(case):
    one, (tokens, max_norm, dtype), t = find("mended_copies"), case.arguments(0), case.ranks
    numbers, width, hidden = one.module.numbers, one.module.WIDTH, one.module.HIDDEN
    scale = (1 + numbers(width, seed=1, dtype=dtype) / 10).requires_grad_()
    up = numbers(width, hidden, seed=2, dtype=dtype).requires_grad_()
    down = (numbers(hidden, width, seed=3, dtype=dtype) / 2).requires_grad_()
    x, targets = (torch.cat([numbers(tokens, width, seed=s + r, dtype=dtype) for r in range(t)]) for s in (10, 20))
    inner = torch.tanh(x / x.square().mean(-1, keepdim=True).sqrt() * scale @ up)
    masks = [one.module.mask(part, one.module.SEED + rank) for rank, part in enumerate(inner.chunk(t, 1))]
    (x + inner * torch.cat(masks, 1) @ down - targets).square().sum().backward()
    norm = nn.utils.clip_grad_norm_([scale, up, down], max_norm)
    for rank, found in enumerate(one.right(case).returned):
        parts = scale.grad, up.grad.chunk(t, 1)[rank], down.grad.chunk(t, 0)[rank], norm
        names = ("the gradient of scale", "the gradient of up", "the gradient of down", "the norm")
        torch.testing.assert_close([found[name] for name in names], list(parts), rtol=1e-4, atol=1e-5)
