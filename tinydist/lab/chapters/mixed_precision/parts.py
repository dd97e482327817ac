"""Ranks that have a part of the model each, gradients with planted overflows, and what torch makes of them.

The reference is torch.amp.GradScaler in one process that has all parts.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch

SHAPES = [(3, 2), (4,), (2,)]
UNUSED = 2  # this parameter of rank 1 has no gradient


@dataclass(frozen=True)
class Plan:
    ranks: int
    planted: dict  # step -> {rank: what one of its gradients has}
    steps: int = 24
    window: int = 3
    scale: float = 2.0**10
    good_steps: int = 0  # before the first

    @cached_property
    def reference(self):
        """(weights by rank, scale, good steps) after each step."""
        return reference(self)


INF, NAN = math.inf, math.nan
CALM = {}
ONE = {0: {0: INF}, 4: {0: NAN}, 5: {0: -INF}, 9: {0: INF}, 16: {0: NAN}}


def by_turns(ranks):
    """Overflows on one rank after the other, on two at once, at the end of a window, twice in a row."""
    last = ranks - 1
    return {0: {last: INF}, 4: {0: NAN}, 5: {last: -INF}, 9: {0: INF, last: NAN}, 10: {last: INF}, 16: {1: NAN}}


def part(rank):
    """This rank's part of the model, and its optimizer's."""
    generator = torch.Generator().manual_seed(rank)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def plant(parameters, rank, step, scale, planted):
    generator = torch.Generator().manual_seed(100 * step + rank)
    for place, parameter in enumerate(parameters):
        parameter.grad = (
            None if (rank, place) == (1, UNUSED) else scale * torch.randn(parameter.shape, generator=generator)
        )
    if rank in planted:
        parameters[step % 2].grad.view(-1)[step % 3] = planted[rank]


def optimizer_of(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def reference(plan):
    """By torch, in one process that has all parts."""
    parts = [part(rank) for rank in range(plan.ranks)]
    optimizer = optimizer_of([p for mine in parts for p in mine])
    scaler = torch.amp.GradScaler("cpu", init_scale=plan.scale, growth_interval=plan.window)
    scaler.load_state_dict({**scaler.state_dict(), "_growth_tracker": plan.good_steps})
    history = []
    for step in range(plan.steps):
        scale = scaler.scale(torch.ones(())).item()
        for rank, mine in enumerate(parts):
            plant(mine, rank, step, scale, plan.planted.get(step, {}))
        scaler.step(optimizer)
        scaler.update()
        weights = [[p.detach().clone() for p in mine] for mine in parts]
        history.append((weights, scaler.get_scale(), scaler.state_dict()["_growth_tracker"]))
    return history
