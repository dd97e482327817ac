"""The least recomputation in a budget: against all choices, on random chains; and what it becomes in known cases."""

import math
import random
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import tinydist
from tinydist.recompute import Layer, Run, least_recomputation, recompute_runs


def cuts(n):
    """All lists of runs of n layers."""
    for joined in product([False, True], repeat=n - 1):
        lengths = [1]
        for together in joined:
            if together:
                lengths[-1] += 1
            else:
                lengths.append(1)
        for flags in product([False, True], repeat=len(lengths)):
            if all(flag or length == 1 for flag, length in zip(flags, lengths)):
                yield [Run(*each) for each in zip(lengths, flags)]


def judged(layers, runs):
    """Bytes at the peak and seconds computed again, step by step."""
    held, peak, seconds, start = 0, 0, 0, 0
    for run in runs:
        of_run = layers[start : start + run.layers]
        peak = max(peak, held + sum(layer.kept for layer in of_run))
        held += of_run[0].input if run.recomputed else of_run[0].kept
        seconds += sum(layer.seconds for layer in of_run) * run.recomputed
        start += run.layers
    return peak, seconds


def chain(generator):
    layers = []
    for _ in range(generator.randint(1, 7)):
        given = generator.randint(0, 9)
        layers.append(Layer(given, given + generator.randint(0, 30), generator.randint(0, 9)))
    return layers


@pytest.mark.parametrize("seed", range(200))
def test_it_is_the_best_of_all(seed):
    generator = random.Random(seed)
    layers = chain(generator)
    all_ways = [judged(layers, runs) for runs in cuts(len(layers))]
    least = min(peak for peak, _ in all_ways)
    budget = generator.randint(least, max(least, sum(layer.kept for layer in layers)))
    found = least_recomputation(layers, budget)
    assert found.bytes <= budget
    assert found.seconds == min(seconds for peak, seconds in all_ways if peak <= budget)
    assert judged(layers, found.runs) == (found.bytes, found.seconds)
    assert sum(run.layers for run in found.runs) == len(layers)
    if least:
        with pytest.raises(ValueError, match=f"least_recomputation: .* at least {least} are needed"):
            least_recomputation(layers, least - 0.5)


@given(st.integers(1, 40), st.integers(1, 50))
def test_equal_layers_need_the_square_root(n, times):
    """Of n layers with inputs of 1 and activations of a: at least about 2 sqrt(a n)."""
    layers = [Layer(1, times, 1)] * n
    least = min(-(-n // k) - 1 + max(k * times, 1) for k in range(1, n + 1))
    found = least_recomputation(layers, math.floor(2 * math.sqrt(times * n) + times + 1))
    assert found.bytes <= 2 * math.sqrt(times * n) + times + 1
    assert least <= 2 * math.sqrt(times * n) + times


def test_with_room_for_all_nothing_is_computed_again():
    layers = [Layer(1, 5, 2)] * 4
    assert least_recomputation(layers, 20) == ([Run(1, False)] * 4, 20, 0)
    assert least_recomputation(layers, 19).seconds == 2


def test_its_bytes_are_those_of_the_ledger():
    """Layers of different widths inside, in float32: what is held at most between start and end."""
    torch.manual_seed(0)
    inner = [2, 8, 1, 4, 6]
    D, T = 32, 64
    layers = [Layer(D * T * 4, (1 + each) * D * T * 4, each) for each in inner]

    def program(runs):
        blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(D, n * D, bias=False), nn.Tanh(), nn.Linear(n * D, D, bias=False)) for n in inner
        )
        blocks = recompute_runs(blocks, runs)
        x = torch.ones(T, D, requires_grad=True)
        tinydist.mark("start")
        y = 1 * x
        for block in blocks:
            y = block(y)
        tinydist.mark("between")

    def held(runs):
        memory = tinydist.launch(program, 1, runs).memory[0]
        return memory.at("between")["activations"] - memory.at("start")["activations"] - D * T * 4  # the output

    for budget in (90_000, 130_000, 170_000, 220_000):
        runs, peak, _ = least_recomputation(layers, budget)
        kept = [layers[at].input if run.recomputed else layers[at].kept for at, run in zip(starts(runs), runs)]
        assert held(runs) == sum(kept) <= peak <= budget, runs


def starts(runs):
    place = 0
    for run in runs:
        yield place
        place += run.layers


def test_errors():
    with pytest.raises(ValueError, match="least_recomputation: layers must be a non-empty list, each item a Layer"):
        least_recomputation([(1, 2, 3)], 5)
    with pytest.raises(ValueError, match=r"Layer: input \(3\) must be <= kept \(2\), which includes it"):
        Layer(3, 2, 1)
    with pytest.raises(ValueError, match="budget must be a finite number >= 0, got -1"):
        least_recomputation([Layer(1, 2, 3)], -1)
