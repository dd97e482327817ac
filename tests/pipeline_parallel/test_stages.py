"""Cuts that are as even as can be."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tinydist.attention.decoder import Decoder, DecoderConfig
from tinydist.model import GPT, GPTConfig
from tinydist.pipeline_parallel import (
    balanced,
    cut,
    evenly,
    forward_flops,
    layers_of,
    parameter_counts,
)


def costs_of(costs, sizes):
    found, start = [], 0
    for size in sizes:
        found.append(sum(costs[start : start + size]))
        start += size
    return found


def cuts(layers, stages):
    """Every one, as sizes; those with more layers in the first stages come first."""
    found = [
        [b - a for a, b in zip((0, *inner), (*inner, layers))] for inner in combinations(range(1, layers), stages - 1)
    ]
    return sorted(found, reverse=True)


def largest(costs, sizes):
    return max(costs_of(costs, sizes))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.data())
def test_balanced_is_the_best_there_is(costs, data):
    """The least largest stage, then the least sum of squares, then the first stages with more layers."""
    stages = data.draw(st.integers(1, len(costs)))
    squares = lambda sizes: sum(cost**2 for cost in costs_of(costs, sizes))  # noqa: E731
    best = min(cuts(len(costs), stages), key=lambda sizes: (largest(costs, sizes), squares(sizes)))
    assert balanced(costs, stages) == best


@given(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.data())
def test_a_stage_is_without_work_only_where_layers_with_work_are_too_few(costs, data):
    stages = data.draw(st.integers(1, len(costs)))
    idle = costs_of(costs, balanced(costs, stages)).count(0)
    assert idle == max(0, stages - sum(cost > 0 for cost in costs))


@given(st.integers(1, 60), st.data())
def test_equal_layers_are_cut_evenly(layers, data):
    stages = data.draw(st.integers(1, layers))
    assert balanced([3] * layers, stages) == evenly(range(layers), stages)


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=7), st.data())
def test_balanced_seconds(costs, data):
    stages = data.draw(st.integers(1, len(costs)))
    sizes = balanced(costs, stages)
    assert len(sizes) == stages and largest(costs, sizes) == pytest.approx(
        min(largest(costs, each) for each in cuts(len(costs), stages))
    )


@given(st.integers(1, 50), st.data())
def test_evenly(layers, data):
    stages = data.draw(st.integers(1, layers))
    sizes = evenly(range(layers), stages)
    assert sum(sizes) == layers and len(sizes) == stages
    assert sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1


def test_the_example():
    assert evenly([3, 1, 1, 1, 4], 2) == [3, 2] and balanced([3, 1, 1, 1, 4], 2) == [3, 2]
    assert balanced([1, 1, 1, 9], 2) == [3, 1] and evenly([1, 1, 1, 9], 2) == [2, 2]
    assert balanced([1, 1, 1, 1, 0, 1], 4) == [2, 1, 2, 1]
    assert balanced([2, 1.5, 0.5, 2], 3) == [1, 2, 1]  # whole numbers and others


def test_a_gpt_in_stages():
    torch.manual_seed(0)
    gpt, tokens = GPT(GPTConfig(layers=3, dim=8, heads=2)), torch.arange(10).view(2, 5)
    layers = layers_of(gpt)
    stages = cut(layers, balanced(parameter_counts(layers), 3))
    x = tokens
    for stage in stages:
        x = stage(x)
    assert torch.equal(x, gpt(tokens))
    assert {id(p) for stage in stages for p in stage.parameters()} == {id(p) for p in gpt.parameters()}


def test_a_decoder_in_stages():
    torch.manual_seed(0)
    decoder, tokens = Decoder(DecoderConfig(layers=3)), torch.arange(10).view(2, 5)
    x = tokens
    for stage in cut(layers_of(decoder), [2, 1, 2]):
        x = stage(x)
    assert torch.equal(x, decoder(tokens))
    loss = torch.nn.functional.cross_entropy(x.flatten(0, 1), tokens.flatten())
    assert torch.equal(decoder.loss(tokens, tokens), loss)


def test_flops():
    with torch.device("meta"):
        layers, tokens = (
            [nn.Embedding(5, 8), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)],
            torch.zeros(3, dtype=torch.long),
        )
    assert forward_flops(layers, tokens) == [0, 2 * 3 * 8 * 16, 0, 2 * 3 * 16 * 4]


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: evenly([1] * 3, 4), "4 stages need at least one layer each, but there are 3"),
        (lambda: balanced([1, 2], 3), "3 stages need at least one layer each, but there are 2"),
        (lambda: balanced([1, -2], 1), "costs must be 0 or more, got -2"),
        (lambda: cut([nn.Tanh()] * 3, [1, 1]), r"cut: sizes must be integers >= 1 that sum to 3, got \[1, 1\]"),
        (lambda: cut([nn.Tanh()] * 3, [3, 0]), r"sum to 3, got \[3, 0\]"),
    ],
)
def test_impossible(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: evenly(3, 2), "evenly: layers must be an iterable, got 3"),
        (lambda: balanced(3, 2), "balanced: costs must be an iterable, got 3"),
        (lambda: cut([nn.Tanh()] * 3, 3), "cut: sizes must be integers >= 1 that sum to 3, got 3"),
        (lambda: cut(3, [1, 2]), "cut: layers must be a non-empty list, each item a Module, got 3"),
    ],
)
def test_layers_are_given_one_by_one(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
