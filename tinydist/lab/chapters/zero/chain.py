"""A chain of layers without biases, whose gradients are much larger than its activations."""

import torch
from torch import nn

WIDTH, ROWS, FLOAT = 24, 1, 4
LAYER = WIDTH * WIDTH * FLOAT  # bytes of a layer's weight; 1, 2, 3, 4 and 8 divide it
ACTIVATION = ROWS * WIDTH * FLOAT
SQUARE = [(WIDTH, WIDTH)]
OBLONG = [(64, 9), (9, 64)]  # as many numbers: 2 and 3 divide these, but not all rows


def weights(layers, shapes=SQUARE):
    """[rows, columns], each: ``shapes`` take turns."""
    generator = torch.Generator().manual_seed(0)
    sizes = [shapes[layer % len(shapes)] for layer in range(layers)]
    return [torch.randn(*size, generator=generator) / size[1] ** 0.5 for size in sizes]


def inputs(rank, step, width=WIDTH):
    return torch.randn(ROWS, width, generator=torch.Generator().manual_seed(100 * step + rank))


def model(layers):
    with torch.random.fork_rng(devices=[]):  # a check leaves the reader's random numbers as they are
        chain = nn.Sequential()
        for weight in weights(layers, OBLONG):
            linear = nn.Linear(*weight.T.shape, bias=False)
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
