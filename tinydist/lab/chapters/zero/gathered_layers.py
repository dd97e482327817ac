"""A chain of layers of which each rank has shards alone: how it is trained, and what is noted of that."""

import torch
import torch.distributed as dist
from torch import nn

from ...errors import Wrong
from ...ranks import Case
from .chain import ACTIVATION, WIDTH, inputs, loss, noted, part, weights
from .held import held_now

LAYERS, STEPS, CHANGE = 5, 2, 0.5
ACTIVATIONS = LAYERS * 4 * ACTIVATION  # an input, a product, a tanh, and one more


def case(ranks):
    return Case(ranks, lambda rank: (shards(rank, ranks), STEPS), f"{LAYERS} layers, {STEPS} steps")


def shards(rank, ranks):
    return nn.ParameterList(part(weight, rank, ranks).clone() for weight in weights(LAYERS))


def train(answer, shards, steps):
    """After each step: output, gradient of x, gradients of shards; and bytes held more after forward than before.

    Nothing sets gradients of shards to None: those of all steps add up.
    """
    rank, found = dist.get_rank(), []
    for step in range(steps):
        x = inputs(rank, step).requires_grad_()
        before, y = held_now(), x
        for layer, shard in enumerate(shards):
            y = answer(y, shard, WIDTH)
            look_at(y, layer, rank)
            y = torch.tanh(y)
        output, more = noted(y), held_now() - before
        loss(y).backward()
        gradients = [gradient_of(shard, layer, rank) for layer, shard in enumerate(shards)]
        found.append((output, noted(gradient_of(x, None, rank)), gradients, more))
        del x, y
        with torch.no_grad():
            for shard in shards:
                shard *= CHANGE
    return found


def look_at(y, layer, rank):
    if not isinstance(y, torch.Tensor) or y.shape != (1, WIDTH):
        what = list(y.shape) if isinstance(y, torch.Tensor) else type(y).__name__
        raise Wrong(f"on rank {rank} layer {layer} returned {what}, where a tensor of shape {[1, WIDTH]} is right")
    if not y.requires_grad:
        raise Wrong(
            f"on rank {rank} what layer {layer} returned has no backward: neither x nor the shard would get a "
            "gradient. Is its result that of Linear.apply?"
        )


def gradient_of(tensor, layer, rank):
    name = "x" if layer is None else f"the shard of layer {layer}"
    if tensor.grad is None:
        raise Wrong(
            f"on rank {rank} {name} has no gradient: the way from the output to it is cut. An all-gather has no "
            "backward of its own: Linear.backward returns a gradient for each argument of forward"
        )
    return tensor.grad if layer is None else noted(tensor.grad)
