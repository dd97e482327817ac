"""A chain of layers whose gradients become shards: how it is trained, and what is noted of that."""

import torch
import torch.distributed as dist

from ...errors import Wrong
from ...messages import many
from ...ranks import Case
from .chain import LAYER, loss, model, noted
from .gradient_mistakes import LAYERS, batch
from .held import held_now

STEPS = 2


def case(ranks):
    return Case(ranks, lambda _: (model(LAYERS), STEPS), f"{LAYERS} layers, {STEPS} steps")


def train(answer, chain, steps):
    """After each step: the shards' gradients, the layers whose ``.grad`` is left, and the bytes held more than before
    the first."""
    rank, found, before = dist.get_rank(), [], held_now()
    layers = [module.weight for module in chain if hasattr(module, "weight")]
    collect = answer(list(layers))
    if not callable(collect):
        raise Wrong(f"on rank {rank} it returned {collect!r}, where it should return the function collect")
    for step in range(steps):
        loss(chain(batch(rank, step))).backward()
        left = [number for number, weight in enumerate(layers) if weight.grad is not None]
        shards = collect()
        complete(shards, rank, step)
        found.append(([noted(shard) for shard in shards], left))
        del shards
        found[-1] += (held_now() - before,)
    return found


def complete(shards, rank, step):
    if not isinstance(shards, list | tuple) or not all(isinstance(each, torch.Tensor) for each in shards):
        kind = type(shards).__name__
        raise Wrong(f"in step {step} collect returned a {kind} on rank {rank}, where a list of tensors is right")
    if len(shards) != LAYERS:
        more = ": each step must begin with an empty list" if len(shards) == LAYERS * (step + 1) else ""
        raise Wrong(
            f"in step {step} collect returned {many(len(shards), 'tensor')}, where {LAYERS} are right, one a "
            f"layer{more}"
        )
    size = LAYER // 4 // dist.get_world_size()
    for number, shard in enumerate(shards):
        if shard.numel() != size:
            raise Wrong(
                f"in step {step} the gradient of layer {number} has {shard.numel()} numbers on rank {rank}, where its "
                f"shard has {size}"
            )
        if shard.shape != (size,):
            raise Wrong(
                f"in step {step} the gradient of layer {number} has shape {list(shard.shape)} on rank {rank}, where "
                f"flat, {[size]}, is right: p divides the numbers of a layer, and need not divide its rows"
            )
