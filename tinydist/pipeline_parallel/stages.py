"""Partitioning a model into stages of consecutive layers, balanced by cost.

    layers     3  1  1  1  4        seconds, parameters, or 1 each
    evenly     3  1  1 | 1  4       the same number of layers (the first stages get one more): here 5 and 5
    balanced   3  1  1 | 1  4       the least possible cost of the largest stage, and the others alike

``balanced`` is exact: a binary search over the sums of consecutive layers finds the least maximum cost, where filling
stages greedily from the left tests feasibility. Among the optimal partitions the most even one is found by dynamic
programming, from the last layer to the first. Sources: Pinar and Aykanat, Fast Optimal Load Balancing Algorithms for 1D
Partitioning, 2004; Harlap et al., PipeDream, 2018 (by measured cost).
"""

from bisect import bisect_left
from itertools import accumulate, takewhile

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ..rules import amount, count, each_of, listed, several, shown, stated, validate


@validate(layers=each_of(nn.Module))
def cut(layers, sizes) -> list[nn.Sequential]:
    """The stages, of as many layers each as ``sizes`` says: ``cut(layers, evenly(layers, 4))``."""
    layers = list(layers)
    if not each_of(count)(sizes) or sum(sizes) != len(layers):
        raise ValueError(f"cut: sizes must be integers >= 1 that sum to {len(layers)}, got {shown(sizes)}")
    ends = list(accumulate(sizes))
    return [nn.Sequential(*layers[end - size : end]) for end, size in zip(ends, sizes)]


@validate(layers=several)
def evenly(layers, stages) -> list[int]:
    """Layers per stage, as equal as possible; the first stages get the remainder."""
    number = len(list(layers))
    check(number, stages)
    return [number // stages + (stage < number % stages) for stage in range(stages)]


@validate(costs=several)
def balanced(costs, stages) -> list[int]:
    """Layers per stage (at least one) that minimize the cost of the most expensive stage.

    Of all such cuts the evenest: that with the least sum of squared costs; of several such, that with more layers in
    the first stages. So a stage costs nothing only where fewer layers than stages cost something.
    """
    costs = list(costs)
    check(len(costs), stages)
    for cost in costs:
        if not amount(cost):
            raise ValueError(f"balanced: costs must be 0 or more, got {shown(cost)}")
    limit = least_limit(costs, stages)
    follow = {len(costs): (0, [])}  # first layer -> (sum of squared costs, sizes) of the stages from it on
    for _ in range(stages):
        follow = {first: evenest(costs, first, limit, follow) for first in range(len(costs))}
        follow = {first: found for first, found in follow.items() if found}
    return follow[0][1]


def least_limit(costs, stages):
    """The least possible cost of the most expensive stage."""
    sums = sorted({total for first in range(len(costs)) for total in accumulate(costs[first:])})
    alone = bisect_left(sums, max(costs))  # no less, since a layer is not cut
    return sums[bisect_left(sums, True, alone, key=lambda limit: len(filled(costs, limit)) <= stages)]


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


def evenest(costs, first, limit, follow):
    """The best of the stages that begin at ``first`` and end where one of ``follow`` begins; None if there is none."""
    ends = enumerate(takewhile(lambda cost: cost <= limit, accumulate(costs[first:])), first + 1)
    options = [(follow[end][0] + cost**2, -end) for end, cost in ends if end in follow]
    if not options:
        return None
    squares, end = min(options)
    return squares, [-end - first, *follow[-end][1]]


def check(layers, stages):
    if not (listed(stages) and count(layers) and stages <= layers):
        wanted, there = shown(stages), shown(layers)
        raise ValueError(f"{wanted} stages need at least one layer each, but there are {there}")


# What a layer costs.


@validate(layers=each_of(nn.Module))
def parameter_counts(layers) -> list[int]:
    return [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]


@validate(layers=each_of(nn.Module), inputs=torch.Tensor)
def forward_flops(layers, inputs) -> list[int]:
    """FLOPs of each layer's matmuls in forward; on ``meta`` they are counted without being computed."""
    found = []
    for layer in layers:
        with FlopCounterMode(display=False) as counter:
            inputs = layer(inputs)
        found.append(counter.get_total_flops())
    return found


# A GPT (model/gpt.py, or one with the same parts) as layers; or a decoder, whose positions are rotary (attention/).


class Embed(nn.Module):
    """Tokens [B, T] -> [B, T, D]."""

    def __init__(self, gpt):
        super().__init__()
        self.embedding, self.position, self.dropout = gpt.embedding, gpt.position, gpt.dropout

    def forward(self, tokens):
        return self.dropout(self.embedding(tokens) + self.position.weight[: tokens.shape[1]])


class Head(nn.Module):
    """[B, T, D] -> logits [B, T, V]."""

    def __init__(self, gpt):
        super().__init__()
        self.norm, self.head = gpt.norm, gpt.head

    def forward(self, x):
        return self.head(self.norm(x))


class Causal(nn.Module):
    """A block called with ``causal=True``."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return self.block(x, causal=True)


parts_of_a_gpt = ("embedding", "blocks", "norm", "head")
gpts = stated(f"a GPT, with {', '.join(parts_of_a_gpt)}", lambda given: all(hasattr(given, p) for p in parts_of_a_gpt))


@validate(gpt=gpts)
def layers_of(gpt) -> list[nn.Module]:
    """Embedding, blocks, head: one after another they are the model, and have its parameters."""
    if hasattr(gpt, "position"):
        return [Embed(gpt), *gpt.blocks, Head(gpt)]
    return [gpt.embedding, *map(Causal, gpt.blocks), Head(gpt)]
