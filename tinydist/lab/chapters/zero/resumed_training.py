"""What the given training loop goes on from, and what it should come to: in one process, with mistakes or without."""

from math import inf

import torch

from .held import held_now

LAYERS, WIDTH, STEPS = 4, 24, 2
LAYER, ACTIVATION = 4 * WIDTH * WIDTH, 4 * WIDTH  # bytes
RATE, MOMENTUM = 0.1, 0.9
CLIPPED, UNCLIPPED = 0.05, 3.0  # max_norm below and above the gradients' norm


def numbers(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Checkpoint:
    """Reads whole tensors, anew at each call. ``moving``: there are momenta other than zero."""

    layers, width = LAYERS, WIDTH

    def __init__(self, moving=True):
        self.moving = moving

    def weight(self, layer):
        return numbers(WIDTH, WIDTH, seed=layer) / WIDTH**0.5

    def momentum(self, layer):
        return numbers(WIDTH, WIDTH, seed=50 + layer) / 10 * self.moving


class Batches:
    """(inputs, targets) of each step. It notes the bytes that are held when one is taken: ``held``."""

    def __init__(self, rank):
        self.rank, self.held = rank, []

    def __iter__(self):
        for step in range(STEPS):
            self.held.append(held_now())
            yield batch(self.rank, step)


def batch(rank, step):
    return numbers(1, WIDTH, seed=1000 + 10 * step + rank), numbers(1, WIDTH, seed=2000 + 10 * step + rank)


def gradients_of(weights, inputs, targets, stale=False):
    """``stale``: backward uses the last layer's weight throughout."""
    x, saved = inputs, []
    for weight in weights:
        y = torch.tanh(x @ weight)
        saved.append((x, y))
        x = y
    grad, found = 2 * (x - targets) / x.numel(), []
    for (x, y), weight in zip(reversed(saved), reversed(weights)):
        grad = grad * (1 - y * y)
        found.insert(0, x.T @ grad)
        grad = grad @ (weights[-1] if stale else weight).T
    return found


def cut(tensor, p):
    return list(tensor.flatten().chunk(p))


def norm(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors]).norm()


def global_norms(parts, p):
    """By rank, the norm of all shards."""
    return [norm([shard for layer in parts for shard in layer])] * p


def local_norms(parts, p):
    return [norm([layer[rank] for layer in parts]) for rank in range(p)]


def trained(
    p,
    moving=True,
    max_norm=inf,
    *,
    stale=False,
    owner=lambda r, p: r,
    norms=global_norms,
    loud=None,
    factor=1,
    always=False,
    by_layer=False,
):
    """By rank, the shards of all layers after training on the batches of ``p`` ranks.

    ``owner``: whose momentum rank r takes. ``norms(parts, p)``: by rank, by what gradients are clipped. ``loud``: how
    much each rank's gradient counts. ``factor``: gradients are so many times the mean.
    ``always``: those shorter than max_norm are made as long. ``by_layer``: each layer is clipped by its own norm.
    """
    checkpoint, loud = Checkpoint(moving), loud or [1] * p
    shards = [cut(checkpoint.weight(layer), p) for layer in range(LAYERS)]
    momenta = [cut(checkpoint.momentum(layer), p) for layer in range(LAYERS)]
    momenta = [[layer[owner(rank, p)] for rank in range(p)] for layer in momenta]
    for step in range(STEPS):
        whole = [torch.cat(layer).view(WIDTH, WIDTH) for layer in shards]
        each = [gradients_of(whole, *batch(rank, step), stale) for rank in range(p)]
        parts = [cut(sum(w * g for w, g in zip(loud, layer)) * factor / p, p) for layer in zip(*each)]
        together = [[layer] for layer in parts] if by_layer else [parts] * LAYERS
        by = [[clip_factor(max_norm / float(each), always) for each in norms(of, p)] for of in together]
        momenta = [[MOMENTUM * m + b * g for m, b, g in zip(*layer)] for layer in zip(momenta, by, parts)]
        shards = [[shard - RATE * m for shard, m in zip(*layer)] for layer in zip(shards, momenta)]
    return [[layer[rank] for layer in shards] for rank in range(p)]


def clip_factor(ratio, always):
    return ratio if always and ratio < inf else min(1.0, ratio)
