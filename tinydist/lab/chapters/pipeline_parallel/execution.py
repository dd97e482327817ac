"""A schedule, executed with real tensors, on ranks where matrix products alone take time.

A forward is one product, a backward two: its input's gradient, which the first stage computes, too, since it begins
with a parameter, and the weights'. Messages take no time.
"""

import math
from functools import cache

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ....hardware import Cluster, Device, Link
from ....launch import launch
from ....pipeline_parallel import Worker

WIDTH, ROWS = 8, 2
SECOND = Device("products of a second", {"float32": 2 * ROWS * WIDTH * WIDTH}, math.inf, math.inf)
WIRES = Link("wires", 0.0, math.inf, "mesh")


class Stage(nn.Module):
    def __init__(self, number):
        super().__init__()
        generator = torch.Generator().manual_seed(number)
        self.scale = nn.Parameter(torch.rand(WIDTH, generator=generator) + 0.5)
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5)

    def forward(self, x):
        return torch.tanh((x * self.scale) @ self.weight)


def batch(microbatches):
    generator = torch.Generator().manual_seed(100)
    return torch.randn(2, ROWS * microbatches, WIDTH, generator=generator).unbind()


def gradients(module):
    return [parameter.grad for parameter in module.parameters()]


def executed(schedule):
    """A run of one step: each rank returns its gradients, and the loss if it has the last stage."""

    def program():
        mine = {stage: Stage(stage) for stage in schedule.stages_of(dist.get_rank())}
        worker = Worker(schedule, mine, torch.empty(ROWS, WIDTH, device="meta"), F.mse_loss)
        loss = worker.step(*batch(schedule.microbatches))
        return {stage: gradients(module) for stage, module in mine.items()}, loss

    return launch(program, schedule.ranks, backend="simulated", cluster=Cluster(SECOND, schedule.ranks, WIRES))


@cache
def in_one_process(stages, microbatches):
    """(gradients by stage, loss)."""
    model, (inputs, targets) = nn.Sequential(*map(Stage, range(stages))), batch(microbatches)
    loss = F.mse_loss(model(inputs), targets)
    loss.backward()
    return [gradients(stage) for stage in model], loss.detach()
