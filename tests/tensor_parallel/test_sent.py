"""Bytes sent by a layer, by the traffic matrix: four all-reduces of bsh numbers, or what takes their place."""

import pytest
import torch
import torch.distributed as dist
from sampled import sampled

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.tensor_parallel import shard

B, T, D = 2, 24, 24
BSH, FP32 = B * T * D, 4  # numbers, and bytes of each


def training(layers, steps, how):
    model = shard(GPT(GPTConfig(vocab_size=24, context=T, layers=layers, heads=24, dim=D)), **how)
    tokens = torch.zeros(B, T, dtype=torch.long)
    for _ in range(steps):
        model.loss(tokens, tokens).backward()


def numbers_of_a_layer(ranks, **how):
    """That a rank sends in a step: what a second step sends, and of it what a second layer does."""

    def sent(layers, steps):
        world = {"fake": True, "only": [0], "observe": "communication"}
        return sum(tinydist.launch(training, ranks, layers, steps, how, **world).traffic[0]) / FP32

    return sent(2, 2) - sent(2, 1) - sent(1, 2) + sent(1, 1)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_four_all_reduces(ranks):
    """8 bsh (t-1)/t (Narayanan et al. 2021, section 3.2)."""
    assert numbers_of_a_layer(ranks) == 8 * BSH * (ranks - 1) / ranks


@pytest.mark.parametrize("sequence, times", [("save", 8), ("overlap", 8), ("regather", 10)])
@pytest.mark.parametrize("ranks", sampled([3, 8], [2, 3, 8]))
def test_with_tokens_cut_the_same_or_two_gathers_more(ranks, sequence, times):
    """And the gradients of two norms, weight and bias, and of the two biases behind a sum, all-reduced."""
    norms = 2 * (ranks - 1) / ranks * 6 * D
    expected = times * BSH * (ranks - 1) / ranks + norms
    assert numbers_of_a_layer(ranks, sequence_parallel=sequence) == pytest.approx(expected, rel=1e-12)


def test_collectives_of_a_layer():
    def program(how):
        with tinydist.region("made"):
            model = shard(GPT(GPTConfig(layers=1, context=T, heads=4, dim=D)), **how)
        x = torch.ones(B, T // (1 + ("sequence_parallel" in how)), D, requires_grad=True)
        dist.barrier()
        model.blocks[0](x).sum().backward()

    def issued(**how):
        trace = tinydist.launch(program, 2, how).trace
        names = [event.name for event in trace.of(0) if event.transfer and event.stream != "compute"]
        return names[names.index("barrier") + 1 :]

    assert issued() == ["all_reduce"] * 4
    of_norms_and_biases = ["all_reduce"] * 6
    both = ["all_gather", "reduce_scatter"]
    assert sorted(issued(sequence_parallel="save")) == sorted(of_norms_and_biases + 4 * both)
    assert sorted(issued(sequence_parallel="regather")) == sorted(of_norms_and_biases + 4 * both + 2 * both[:1])
