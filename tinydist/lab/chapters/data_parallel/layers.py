"""Small models with their parameters in buckets, and a backward pass that differs by rank and step."""

import torch
from torch import nn

WIDTH = ROWS = 8
LAYER = WIDTH * WIDTH * 4  # bytes


class Chain(nn.Sequential):
    """Layers, one after another, in buckets of so many: those that are ready first are in the first bucket."""

    def __init__(self, counts, rank):
        super().__init__(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(sum(counts))])
        ready = reversed(list(self.parameters()))
        self.buckets = [[next(ready) for _ in range(count)] for count in counts]


class Branches(nn.Module):
    """Two layers side by side, in another order on odd ranks: so their gradients are ready in another order."""

    def __init__(self, counts, rank):
        super().__init__()
        self.below, self.one, self.other = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.order = [self.other, self.one] if rank % 2 else [self.one, self.other]
        self.buckets = [list(layer.parameters()) for layer in (self.one, self.other, self.below)]

    def forward(self, x):
        x = torch.tanh(self.below(x))
        return sum(torch.tanh(layer(x)) for layer in self.order)


def build(kind, counts, rank):
    with torch.random.fork_rng(devices=[]):  # a check leaves the reader's random numbers as they are
        torch.manual_seed(0)
        return kind(counts, rank)


def backward(model, rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    model.zero_grad()
    model(torch.randn(ROWS, WIDTH, generator=generator)).pow(2).mean().backward()


def gradients(model):
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
