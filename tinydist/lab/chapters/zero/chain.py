"""A chain of layers without biases, whose gradients are much larger than its activations."""

import torch
from torch import nn

WIDTH, ROWS, FLOAT = 24, 1, 4
LAYER = WIDTH * WIDTH * FLOAT  # bytes of a layer's weight; 1, 2, 3, 4 and 8 divide it
ACTIVATION = ROWS * WIDTH * FLOAT


def weights(layers):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5 for _ in range(layers)]


def inputs(rank, step):
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))


def model(layers):
    with torch.random.fork_rng(devices=[]):  # a check leaves the reader's random numbers as they are
        chain = nn.Sequential()
        for weight in weights(layers):
            linear = nn.Linear(WIDTH, WIDTH, bias=False)
            linear.weight.data.copy_(weight)
            chain += nn.Sequential(linear, nn.Tanh())
    return chain


def loss(output):
    return output.pow(2).sum()


def noted(tensor):
    """Its numbers, where no ledger counts them."""
    return tensor.detach().numpy().copy()


def part(tensor, rank, ranks):
    return tensor.flatten().chunk(ranks)[rank]
