"""Where to cut a model: consecutive layers become a stage, and the slowest stage sets the pace of all.

    layers     3  1  1  1  4        seconds, parameters, or 1 each
    evenly     3  1  1 | 1  4       the same number of layers (the first stages get one more): here 5 and 5
    balanced   3  1  1 | 1  4       the least possible cost of the largest stage

``balanced`` is exact: which costs of a stage are possible is a question with a yes or no (fill stages from the left, as
full as allowed), and only sums of consecutive layers can be the answer. Source: Pinar and Aykanat, Fast Optimal Load
Balancing Algorithms for 1D Partitioning, 2004; Harlap et al., PipeDream, 2018 (by measured cost).
"""

import statistics
import time
from itertools import accumulate

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def cut(layers, sizes) -> list[nn.Sequential]:
    """The stages, of as many layers each as ``sizes`` says."""
    layers = list(layers)
    if sum(sizes) != len(layers) or min(sizes, default=0) < 1:
        raise ValueError(f"cut: stages of 1 or more layers that add up to {len(layers)}, got {list(sizes)}")
    ends = list(accumulate(sizes))
    return [nn.Sequential(*layers[end - size : end]) for end, size in zip(ends, sizes)]


def evenly(layers, stages) -> list[int]:
    """Layers of each stage, the first one more each where they do not divide. ``layers`` is how many there are."""
    check(layers, stages)
    return [layers // stages + (stage < layers % stages) for stage in range(stages)]


def balanced(costs, stages) -> list[int]:
    """Layers of each stage, so that the cost of the most expensive stage is the least possible."""
    costs = list(costs)
    check(len(costs), stages)
    if min(costs) < 0:
        raise ValueError(f"balanced: costs must be 0 or more, got {min(costs)}")
    low, high = max(costs), sum(costs)
    sums = sorted({sum(costs[a:b]) for a in range(len(costs)) for b in range(a + 1, len(costs) + 1)})
    possible = [limit for limit in sums if low <= limit <= high]
    while len(possible) > 1:
        middle = (len(possible) - 1) // 2
        fits = len(filled(costs, possible[middle])) <= stages
        possible = possible[: middle + 1] if fits else possible[middle + 1 :]
    return split_up(filled(costs, possible[0]), stages)


def filled(costs, limit):
    """Layers of each stage, if each takes as many as it can without costing more than ``limit``."""
    sizes, cost = [0], 0
    for each in costs:
        if sizes[-1] and cost + each > limit:
            sizes.append(0)
            cost = 0
        sizes[-1] += 1
        cost += each
    return sizes


def split_up(sizes, stages):
    """As many stages as there must be: one of several layers gives its last to a stage of its own."""
    while len(sizes) < stages:
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        sizes[largest : largest + 1] = [sizes[largest] - 1, 1]
    return sizes


def check(layers, stages):
    if not 1 <= stages <= layers:
        raise ValueError(f"{stages} stages of 1 or more layers each need as many layers, but there are {layers}")


# What a layer costs.


def parameter_counts(layers) -> list[int]:
    return [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]


def forward_flops(layers, inputs) -> list[int]:
    """FLOPs of each layer's matrix products in forward; on ``meta`` they are counted without being done."""
    found = []
    for layer in layers:
        with FlopCounterMode(display=False) as counter:
            inputs = layer(inputs)
        found.append(counter.get_total_flops())
    return found


def measured_seconds(layers, inputs, repeats=5) -> list[float]:
    """Seconds of each layer's forward and backward on this machine, medians. The layers' gradients are dropped."""
    found = []
    for layer in layers:
        times = []
        for _ in range(repeats):
            given = inputs.detach().requires_grad_(inputs.is_floating_point())
            finish(inputs)
            began = time.perf_counter()
            output = layer(given)
            output.backward(torch.ones_like(output))
            finish(inputs)
            times.append(time.perf_counter() - began)
        layer.zero_grad()
        found.append(statistics.median(times))
        inputs = output.detach()
    return found


def finish(tensor):
    """A GPU works while the program goes on: wait for it."""
    if tensor.device.type != "cpu":
        torch.accelerator.synchronize(tensor.device)


# A GPT (model/gpt.py, or one with the same parts) as layers.


class Embed(nn.Module):
    """Tokens [B, T] -> [B, T, D]."""

    def __init__(self, gpt):
        super().__init__()
        self.embedding, self.position = gpt.embedding, gpt.position

    def forward(self, tokens):
        return self.embedding(tokens) + self.position.weight[: tokens.shape[1]]


class Head(nn.Module):
    """[B, T, D] -> logits [B, T, V]."""

    def __init__(self, gpt):
        super().__init__()
        self.norm, self.head = gpt.norm, gpt.head

    def forward(self, x):
        return self.head(self.norm(x))


def layers_of(gpt) -> list[nn.Module]:
    """Embedding, blocks, head: one after another they are the model, and have its parameters."""
    return [Embed(gpt), *gpt.blocks, Head(gpt)]
