"""What a training loop is given, and what it should make of it: a model that notes how it is used, and its samples."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SAMPLES, BATCH, EPOCHS, RATE = 10, 2, 2, 0.1


class Scale(nn.Module):
    """Multiplies by a buffer."""

    def __init__(self, rank):
        super().__init__()
        self.register_buffer("scale", torch.tensor([1.0, 0.5, 2.0]) + rank)

    def forward(self, x):
        return x * self.scale


class Model(nn.Sequential):
    """Ranks begin with different numbers. Notes the state in which it is first used, and all inputs."""

    def __init__(self, rank):
        super().__init__(Scale(rank), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        self.start, self.seen = None, []

    def forward(self, x):
        self.start = self.start or state(self)
        self.seen.append(x.clone())
        return super().forward(x)


def new_model(rank):
    with torch.random.fork_rng(devices=[]):  # a check leaves the reader's random numbers as they are
        torch.manual_seed(rank)
        return Model(rank)


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def samples():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(SAMPLES, 3, generator=generator), torch.randn(SAMPLES, 1, generator=generator)


def arguments(rank):
    dataset = TensorDataset(*samples())
    return new_model(rank), DataLoader(dataset, BATCH, sampler=DistributedSampler(dataset)), EPOCHS


def order_of(rank, ranks, epoch):
    sampler = DistributedSampler(range(SAMPLES), num_replicas=ranks, rank=rank)
    sampler.set_epoch(epoch)
    return list(sampler)


@cache
def in_one_process(ranks, only=None, factor=1.0):
    """The weights, and the losses of the last batches, by rank: one model, trained on the batches of all ranks.

    Or what mistakes lead to: on those of one rank ``only``, or with gradients ``factor`` times as large.
    """
    model, (inputs, targets) = new_model(0), samples()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for epoch in range(EPOCHS):
        cut = [
            torch.tensor(order_of(rank, ranks, epoch)).split(BATCH)
            for rank in (range(ranks) if only is None else [only])
        ]
        for batches in zip(*cut):
            optimizer.zero_grad()
            losses = [F.mse_loss(model(inputs[batch]), targets[batch]) for batch in batches]
            (sum(losses) / len(losses) * factor).backward()
            optimizer.step()
    return state(model), [loss.item() for loss in losses]
