"""What the stages hold and send: by formulas, and measured with a small model by the ledger.

Mixed precision with Adam: 2 bytes of weight, 2 of gradient, 12 of states. A step has m microbatches.

    stage    bytes a parameter    bytes sent a step, in (p-1)/p of the 16-bit weights
    0        16                   2             one all-reduce, of the summed gradients
    1        4 + 12/p             2             one reduce-scatter, one all-gather
    2        2 + 14/p             m + 1         each microbatch's gradients are reduced and freed
    3        16/p                 3m            each microbatch gathers twice, and reduces
"""

from contextlib import nullcontext
from functools import cache

import torch
from torch import nn

from ....data_parallel import average_each
from ....launch import launch
from ....precision import MasterWeights
from ....zero import Gradients, OptimizerStates, Parameters

STAGES = (0, 1, 2, 3)
PURPOSES = {"parameters": 2, "gradients": 2, "optimizer states": 12}  # bytes a parameter
SHARDED_FROM = {"parameters": 3, "gradients": 2, "optimizer states": 1}  # the stage
WIDTH, LAYERS = 48, 2
SMALL = LAYERS * WIDTH * WIDTH  # parameters
COUNT = 4  # bytes: Adam counts the steps of each row


def model_states(parameters, ranks, stage, sharded_from=SHARDED_FROM):
    """Bytes a rank."""
    return sum(n * parameters / (ranks if stage >= sharded_from[purpose] else 1) for purpose, n in PURPOSES.items())


def collectives_a_step(stage, microbatches):
    return (2, 2, microbatches + 1, 3 * microbatches)[stage]


def sent(parameters, ranks, stage, microbatches):
    """Bytes a rank, a step."""
    return collectives_a_step(stage, microbatches) * (ranks - 1) / ranks * PURPOSES["parameters"] * parameters


class Replicated:
    """Stage 0: all of it on every rank."""

    def __init__(self, module):
        self.module, self.optimizer, self.no_sync = module, MasterWeights(module.parameters()), nullcontext
        self.zero_grad = self.optimizer.zero_grad

    def step(self):
        average_each(self.module.parameters())
        self.optimizer.step()


def by_layers(module):
    return Parameters(module, units=list(module), prefetch=False)


RUNGS = (Replicated, OptimizerStates, Gradients, by_layers)


def train(stage, microbatches, steps):
    """Ends with a backward, where all model states are there."""
    torch.set_default_dtype(torch.bfloat16)
    rung = RUNGS[stage](nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))))
    for _ in range(steps):
        for _ in range(microbatches):
            rung.module(torch.ones(1, WIDTH)).sum().backward()
        rung.step()
        rung.zero_grad()
    return rung


def backward_after_a_step(stage):
    rung = train(stage, 1, 1)
    rung.module(torch.ones(1, WIDTH)).sum().backward()
    return rung, len(getattr(rung, "flats", [*rung.module.parameters()]))


@cache
def measured_states(ranks, stage):
    """Bytes that a rank holds of the small model, by the ledger, without Adam's counts of steps."""
    run = launch(backward_after_a_step, ranks, stage, backend="simulated", fake=True, only=[0])
    held = list(run.memory[0].over_time())[-1][1]
    return sum(held[purpose] for purpose in PURPOSES) - COUNT * run.results[0][1]


@cache
def measured_sent(ranks, stage, microbatches):
    """Bytes that a rank sends in the second step."""
    runs = (launch(train, ranks, stage, microbatches, steps, backend="simulated") for steps in (1, 2))
    one, two = (sum(run.traffic[0]) for run in runs)
    return two - one
