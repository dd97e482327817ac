"""Experts: a feed-forward network each, and the grouped GEMM of all experts of a rank.

    rows, by expert   | a a a | b | d d |  -->  each group through its own weights  -->  | a a a | b | d d |
    counts                3     1  0  2                                                  no padding, no capacity

An expert has 2 D F parameters, 3 D F if gated, and a row takes twice as many flops. Each is a module whose name is its
number among all, whatever the rank: ``experts.3.up.weight``. One without rows gets a gradient of zeros.

The gradient of an expert is the mean over the ranks of its group, as if their losses were averaged: its rows come from
all of them. What still has to be averaged are only the ranks that have the same experts (parts.py).
Source: Gale et al., MegaBlocks: Efficient Sparse Training with Mixture-of-Experts, 2022 (dropless).
"""

import torch
import torch.nn.functional as F
from torch import nn

from ..collectives.autograd import Conjugates
from ..rules import count, flag, positive, validate


@validate(dim=count, hidden=count, gated=flag, std=positive, generator=torch.Generator)
class Expert(nn.Module):
    """x [N, D] to the same: GELU as in GPT-2, or gated by SiLU as in Mixtral and DeepSeek. No biases."""

    def __init__(self, dim, hidden, *, gated=False, std=0.02, generator=None):
        super().__init__()
        self.gate = linear(dim, hidden, 0.02, generator) if gated else None
        self.up = linear(dim, hidden, 0.02, generator)
        self.down = linear(hidden, dim, std, generator)

    def forward(self, x):  # [N, D]
        return self.down(F.gelu(self.up(x)) if self.gate is None else F.silu(self.gate(x)) * self.up(x))


def linear(inputs, outputs, std, generator):
    """Normal, by this generator alone: a rank draws for its own experts, and they are the same on any rank."""
    layer = nn.Linear(inputs, outputs, bias=False, device="meta")
    layer.weight = nn.Parameter(torch.empty(outputs, inputs).normal_(0, std, generator=generator))
    return layer


class Experts(nn.ModuleDict):
    """A rank's own: number among all -> module. ``ranks``: how many have others, in the same group."""

    def __init__(self, experts, ranks=1):
        super().__init__({str(number): expert for number, expert in experts.items()})
        self.ranks, self.counts = ranks, ()

    def forward(self, rows, counts):  # [R, D], by expert
        """``counts``: how many of the rows are each expert's."""
        if sum(counts) != len(rows):
            raise RuntimeError(f"Experts: {len(rows)} rows, but the counts {list(counts)} have the sum {sum(counts)}")
        self.counts = tuple(counts)
        rows = scaled(rows, self.ranks)
        parts = rows.split(self.counts)
        out = [expert(part) for expert, part in zip(self.values(), parts, strict=True)]
        for number, part, y in zip(self, parts, out):
            if y.shape != part.shape:
                raise RuntimeError(f"Experts: expert {number} made {list(y.shape)} of {list(part.shape)}")
        return scaled(torch.cat(out), 1 / self.ranks)


def scaled(x, factor):
    """x, whose gradient is multiplied by ``factor``. Around the experts: theirs alone is scaled."""
    return x if factor == 1 else Conjugates.apply(x, lambda x: x.view_as(x), lambda gradient: gradient * factor)
