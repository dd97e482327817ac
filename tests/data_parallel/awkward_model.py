"""A small model with everything that makes data parallel training hard, and its training."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tiny_training import OUT, WIDTH, global_batch, weights
from torch import nn

STEPS, ROWS = 5, 24  # rows divide by 1, 2, 3, 4 and 8


class Awkward(nn.Module):
    """Tied weights, a frozen one, a buffer, one used twice, and, if asked for, one that takes no part."""

    def __init__(self, unused=False):
        super().__init__()
        torch.manual_seed(0)
        self.into = nn.Linear(WIDTH, WIDTH)
        self.twice = nn.Linear(WIDTH, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.out = nn.Linear(WIDTH, OUT, bias=False)
        self.out.weight = self.into.weight  # tied: WIDTH == OUT
        self.register_buffer("scale", torch.full((WIDTH,), 0.5))
        self.aside = nn.Linear(3, 3) if unused else None

    def forward(self, x):
        x = torch.tanh(self.into(x)) * self.scale
        return self.out(self.frozen(torch.tanh(self.twice(self.twice(x)))))


def adam(parameters):
    return torch.optim.AdamW([p for p in parameters if p.requires_grad], lr=0.01)


def rows_of(rank, ranks, step):
    return [tensor.chunk(ranks)[rank] for tensor in global_batch(step, ROWS)]


def train(model, average=None, steps=STEPS):
    """The weights after some steps; ``average(parameters)`` after each backward."""
    optimizer = adam(model.parameters())
    for step in range(steps):
        inputs, targets = rows_of(dist.get_rank(), dist.get_world_size(), step)
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        if average:
            average(model.parameters())
        optimizer.step()
    return weights(model)


def train_alone(unused=False):
    """The reference: whole batches, one process, no ranks."""
    model = Awkward(unused)
    optimizer = adam(model.parameters())
    for step in range(STEPS):
        inputs, targets = global_batch(step, ROWS)
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return weights(model)
