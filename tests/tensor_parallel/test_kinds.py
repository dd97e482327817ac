"""Attention by heads; fewer heads of keys than ranks; and a decoder that writes on several ranks."""

import re
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from tensor_parallel.wholes import gradient, named
from tiny_training import assert_every_rank_has
from torch import nn

import tinydist
from tinydist.attention import Decoder, DecoderConfig, generate
from tinydist.tensor_parallel import clip_grad_norm_, cross_entropy, gathered, shard
from tinydist.tensor_parallel.kinds import mlp

VOCABULARY = 61


def decoder(kv_heads):
    """With weights so large that what it writes depends on all that was before."""
    torch.manual_seed(0)
    model = Decoder(DecoderConfig(vocab_size=VOCABULARY, layers=2, heads=24, kv_heads=kv_heads, dim=48))
    for block in model.blocks:
        for layer in (block.attention.query, block.attention.key, block.attention.value, block.attention.out):
            nn.init.normal_(layer.weight, std=0.3)
    return model.double()


TEXT = torch.randint(VOCABULARY, (2, 25), generator=torch.Generator().manual_seed(0))
TOKENS, TARGETS = TEXT[:, :-1], TEXT[:, 1:].flatten()
FITTING = [(1, 4), (1, 8), (2, 2), (2, 8), (4, 8), (6, 2), (6, 3), (24, 8)]  # heads of keys, ranks


@pytest.mark.parametrize("kv_heads, ranks", FITTING)
@pytest.mark.parametrize("sequence", [None, "save"])
def test_all_gradients_are_those_of_the_whole_decoder(kv_heads, ranks, sequence):
    """Those of a key head that several ranks have, too; and each of its numbers counts once in the norm."""
    whole = decoder(kv_heads)
    F.cross_entropy(whole(TOKENS).flatten(0, 1), TARGETS).backward()
    expected = named(whole, gradient), nn.utils.get_total_norm([p.grad for p in whole.parameters()])

    def program():
        model = shard(decoder(kv_heads), sequence_parallel=sequence)
        cross_entropy(model(TOKENS).flatten(0, 1), TARGETS, VOCABULARY).backward()
        return gathered(model, of=gradient), clip_grad_norm_(model, 1e9)

    assert_every_rank_has(expected, tinydist.launch(program, ranks, observe=False).results, atol=1e-12)


@pytest.mark.parametrize("kv_heads, ranks", [(4, 3), (2, 3), (6, 4), (6, 8)])
def test_heads_that_neither_divide_nor_are_divided(kv_heads, ranks):
    error = f"shard: num_kv_heads ({kv_heads}) must divide, or be divisible by, the tensor-parallel degree ({ranks})"
    with pytest.raises(ValueError, match=re.escape(error)):
        tinydist.launch(lambda: shard(decoder(kv_heads)), ranks, observe=False)


def test_copies_of_a_key_head_stay_the_same():
    """Of two heads on four ranks, after steps of training; with Adam, which has states of its own on each."""

    def program():
        model = shard(decoder(2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        for _ in range(3):
            cross_entropy(model(TOKENS).flatten(0, 1), TARGETS, VOCABULARY).backward()
            optimizer.step()
            optimizer.zero_grad()
        return model.blocks[1].attention.key.weight.detach()

    keys = tinydist.launch(program, 4, observe=False).results
    assert torch.equal(keys[0], keys[1]) and torch.equal(keys[2], keys[3]) and not torch.equal(keys[0], keys[2])


@pytest.mark.parametrize("kv_heads, ranks", [(1, 3), (2, 8), (6, 2), (24, 4)])
def test_it_writes_token_for_token_what_the_whole_decoder_writes(kv_heads, ranks):
    prompts = [TEXT[0, :5], TEXT[1, :9]]
    expected = generate(decoder(kv_heads), prompts, 8)
    assert len(expected.unique()) > 4

    def program():
        model = shard(decoder(kv_heads), gather_logits=True)
        return generate(model, prompts, 8), model.caches(2, 4)[0].nbytes

    results = tinydist.launch(program, ranks, observe=False).results
    assert_every_rank_has(expected, [written for written, _ in results], atol=0)
    whole = decoder(kv_heads).caches(2, 4)[0].nbytes
    assert [nbytes for _, nbytes in results] == [whole // min(ranks, kv_heads)] * ranks


def test_a_step_of_decoding_sends_two_all_reduces_a_layer():
    """Of b h numbers each; beside them one for what is embedded, and the logits of others."""

    def program(layers, steps):
        model = shard(Decoder(DecoderConfig(VOCABULARY, layers, 4, 2, 16)), gather_logits=True)
        caches = model.caches(2, steps)
        with torch.no_grad():
            for _ in range(steps):
                model(TEXT[:, :1], caches)

    def step(layers):
        return sum(
            sign * sum(tinydist.launch(program, 2, layers, steps).traffic[0]) for sign, steps in ((1, 2), (-1, 1))
        )

    assert step(2) - step(1) == 2 * (2 * (2 - 1) / 2) * 2 * 16 * 4


class GatedMLP(nn.Module):
    """A gate and its value in one layer, one after the other."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gate_up, self.down = nn.Linear(6, 2 * 12, bias=False), nn.Linear(12, 6, bias=False)

    def forward(self, x):
        gate, value = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * value)


def test_a_fused_gate_is_cut_in_two_blocks():
    """Of each of the two a rank has the same rows; cut in one piece, one rank has the gate, one its value."""
    torch.manual_seed(1)
    x, whole = torch.randn(1, 5, 6), nn.ModuleDict({"mlp": GatedMLP()})
    y = whole["mlp"](x)
    y.pow(2).sum().backward()

    def program(blocks):
        table = {"mlp": partial(mlp, up=["gate_up"], down="down", blocks=blocks)}
        model = shard(nn.ModuleDict({"mlp": GatedMLP()}), table=table)
        found = model["mlp"](x)
        found.pow(2).sum().backward()
        return found.detach(), gathered(model, of=gradient)

    assert_every_rank_has((y.detach(), named(whole, gradient)), tinydist.launch(program, 3, 2).results, atol=1e-5)
    in_one_piece, _ = tinydist.launch(program, 2, 1).results[0]
    assert (in_one_piece - y).norm() > 0.1 * y.norm()
