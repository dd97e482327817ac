"""Ranks that have a part of the model each, and gradients with planted overflows."""

import math
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from tinydist.lab.author import Wrong, kind

SHAPES = [(3, 2), (4,), (2,)]
UNUSED = 2  # this parameter of rank 1 has no gradient
INF, NAN = math.inf, math.nan


@dataclass(frozen=True)
class Plan:
    ranks: int
    planted: dict = field(default_factory=dict)  # step -> {rank: what one of its gradients has}
    steps: int = 18
    window: int = 3
    scale: float = 2.0**10
    good_steps: int = 0  # before the first
    max_norm: float = 4.0  # of one rank's gradients it is about 3.6
    again: tuple = ()  # (rank, step): what it says then, it says in the last step again
    idle: int = -1  # this rank's parameters have no gradients


def by_turns(ranks):
    """Overflows on one rank after the other, on two at once, at the end of a window, twice in a row."""
    last = ranks - 1
    found = {0: {last: INF}, 4: {0: NAN}, 5: {last: -INF}, 9: {0: INF, last: NAN}, 10: {last: INF}}
    return {**found, 16: {min(1, last): NAN}}


def train(answer, plan):
    """On each rank, before the first step and after each: weights, scale, good steps, and the most numbers that this
    rank has put into a call until then."""
    rank, history, counts = dist.get_rank(), [], [0]
    count_numbers(counts)
    if plan.again and rank == plan.again[0]:
        say_again(plan.again[1] + 1, plan.steps, history)
    parameters = parameters_of(rank)
    groups = [{"params": parameters[:1]}, {"params": parameters[1:]}]
    optimizer, scale, good_steps = torch.optim.SGD(groups, lr=0.1, momentum=0.9), plan.scale, plan.good_steps
    history.append((flat(parameters), scale, good_steps, max(counts)))
    for step in range(plan.steps):
        if rank != plan.idle:
            plant(parameters, rank, step, scale, plan.planted.get(step, {}))
        scale, good_steps = pair(answer(optimizer, scale, good_steps, plan.window, plan.max_norm), scale, rank, step)
        history.append((flat(parameters), scale, good_steps, max(counts)))
    return history[:-1] if plan.again and rank == plan.again[0] else history  # what it makes of it is its own affair


def parameters_of(rank):
    generator = torch.Generator().manual_seed(rank)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def flat(parameters):
    return torch.cat([p.detach().flatten() for p in parameters])


def plant(parameters, rank, step, scale, planted):
    generator = torch.Generator().manual_seed(100 * step + rank)
    for place, parameter in enumerate(parameters):
        gradient = scale * torch.randn(parameter.shape, generator=generator)
        parameter.grad = None if (rank, place) == (1, UNUSED) else gradient
    if rank in planted:
        parameters[step % 2].grad.view(-1)[step % 3] = planted[rank]


def norm_of(plan, step):
    """Of all ranks' gradients in this step, unscaled."""
    squares = 0.0
    for rank in set(range(plan.ranks)) - {plan.idle}:
        generator = torch.Generator().manual_seed(100 * step + rank)
        parts = [torch.randn(shape, generator=generator) for shape in SHAPES]
        squares += sum(float(part.square().sum()) for at, part in enumerate(parts) if (rank, at) != (1, UNUSED))
    return math.sqrt(squares)


def count_numbers(counts):
    """How many each call takes: 8 bytes may be two of them."""
    group = dist.group.WORLD
    meet = group._meet

    def meet_and_count(name, move, alike, inputs, *others, **how):
        counts.append(sum(each.numel() * (2 if each.is_complex() else 1) for each in tensors(inputs)))
        return meet(name, move, alike, inputs, *others, **how)

    group._meet = meet_and_count


def say_again(first, second, history):
    """What this rank puts into collectives in one step (from 1), it puts in in another, whatever it has found then."""
    group, said = dist.group.WORLD, []
    meet = group._meet

    def meet_again(name, move, alike, inputs, *others, **how):
        if len(history) == first:
            said.extend(each.clone() for each in tensors(inputs))
        if len(history) == second:
            for mine, before in zip(tensors(inputs), said):
                mine.data.copy_(before)
        return meet(name, move, alike, inputs, *others, **how)

    group._meet = meet_again


def tensors(inputs):
    return [inputs] if isinstance(inputs, torch.Tensor) else [tensor for each in inputs for tensor in tensors(each)]


def pair(returned, given, rank, step):
    told = f"in step {step + 1} rank {rank} returned"
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise Wrong(f"{told} {kind(returned)}, where a pair is right: scale, good_steps")
    scale, good_steps = (each.item() if type(each) is torch.Tensor else each for each in returned)
    if {type(scale), type(good_steps)} - {int, float}:
        raise Wrong(f"{told} {returned!r}, where two numbers are right: scale, good_steps")
    following = (given / 2, given, given * 2)
    if scale not in following:
        swapped = ". The scale goes first: scale, good_steps" if good_steps in following else ""
        raise Wrong(
            f"{told} the scale {scale:g}, and {given:g} was given: the next one is half of it, the same, or twice as "
            f"much{swapped}"
        )
    return scale, good_steps
