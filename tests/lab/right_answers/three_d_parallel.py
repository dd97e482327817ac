"""Other right answers to the exercises of 11_three_d_parallel: they must pass."""

from itertools import permutations, product
from math import prod

import numpy as np
import torch
import torch.distributed as dist
from lab.registered import others, solved

RIGHT_ANSWERS, right = others()


# groups


@right("groups")
def by_numbers_of_a_rank(sizes, order, along):
    """Ranks that agree in all other numbers are together."""
    found = {}
    for rank in range(prod(sizes.values())):
        rest, place = rank, {}
        for axis in order.split("-"):
            rest, place[axis] = divmod(rest, sizes[axis])
        key = tuple(number for axis, number in place.items() if axis not in along.split("-"))
        found.setdefault(key, []).append(rank)
    return sorted(found.values())


@right("groups")
def by_strides(sizes, order, along):
    strides, stride = {}, 1
    for axis in order.split("-"):
        strides[axis] = stride
        stride *= sizes[axis]
    wanted = along.split("-")
    others = [axis for axis in sizes if axis not in wanted]

    def sums(axes):
        return sorted(
            sum(n * strides[a] for n, a in zip(numbers, axes)) for numbers in product(*(range(sizes[a]) for a in axes))
        )

    return [[begin + further for further in sums(wanted)] for begin in sums(others)]


@right("groups")
def with_numpy(sizes, order, along):
    axes = order.split("-")[::-1]
    block = np.arange(prod(sizes.values())).reshape([sizes[axis] for axis in axes])
    wanted = [place for place, axis in enumerate(axes) if axis in along.split("-")]
    moved = np.moveaxis(block, wanted, range(-len(wanted), 0))
    return [list(map(int, each)) for each in moved.reshape(-1, prod(block.shape[place] for place in wanted))]


# clip


@right("clip")
def by_the_first_ranks(gradients, max_norm, mesh):
    """What is copied counts on the first rank along tp alone."""
    t, p = mesh["tp"].get_local_rank(), mesh["pp"].get_local_rank()
    square = torch.zeros((), dtype=gradients[0][0].dtype)
    for gradient, kind in gradients:
        if (kind == "copied" and t) or (kind == "tied" and p):
            continue
        square += torch.linalg.vector_norm(gradient) ** 2
    for axis in ("tp", "pp"):
        dist.all_reduce(square, group=mesh[axis].get_group())
    norm = square**0.5
    torch._foreach_mul_([gradient for gradient, _ in gradients], (max_norm / norm).clamp(max=1))
    return norm


@right("clip")
def over_the_world(gradients, max_norm, mesh):
    once = '    dist.all_reduce(square)\n    square /= mesh["dp"].size()\n'
    along = [f'    dist.all_reduce(square, group=mesh["{axis}"].get_group())\n' for axis in ("tp", "pp")]
    return solved("clip", "".join(along), once)(gradients, max_norm, mesh)


@right("clip")
def returns_a_number(gradients, max_norm, mesh):
    ends = 2 if mesh["pp"].size() > 1 else 1
    counts = {"cut": 1.0, "copied": 1 / mesh["tp"].size(), "tied": 1 / ends}
    square = sum(counts[kind] * gradient.pow(2).sum() for gradient, kind in gradients)
    dist.all_reduce(square, group=mesh["pp"].get_group())
    dist.all_reduce(square, group=mesh["tp"].get_group())
    norm = square.item() ** 0.5
    if norm > max_norm:
        for gradient, _ in gradients:
            gradient.mul_(max_norm / norm)
    return norm


# place_axes


@right("place_axes")
def by_the_numbers_of_each_rank(sizes, sent):
    best = None
    for order in permutations(["pp", "dp", "tp"]):
        places = {}
        for rank in range(prod(sizes.values())):
            rest, place = rank, {}
            for axis in order:
                rest, place[axis] = divmod(rest, sizes[axis])
            places[rank] = place
        leaving = []
        for axis in order:
            nodes = {}
            for rank, place in places.items():
                key = tuple(place[other] for other in order if other != axis)
                nodes.setdefault(key, set()).add(rank // 8)
            if max(map(len, nodes.values())) > 1:
                leaving.append(axis)
        sends = {axis: nbytes for axis, nbytes in sent.items() if sizes[axis] > 1}
        seconds = sum(nbytes / (25e9 if axis in leaving else 300e9) for axis, nbytes in sends.items())
        if best is None or seconds < best[0]:
            best = seconds, "-".join(sorted(leaving))
    return best


@right("place_axes")
def with_numpy_blocks(sizes, sent):
    def tried(order):
        block = np.arange(prod(sizes.values())).reshape([sizes[axis] for axis in reversed(order)]) // 8
        there = [axis for place, axis in enumerate(reversed(order)) if np.ptp(block, axis=place).any()]
        paid = [sent[axis] / (25e9 if axis in there else 300e9) for axis in sizes if sizes[axis] > 1]
        return sum(paid), "-".join(sorted(there))

    return min(map(tried, permutations(sizes)))


@right("place_axes")
def by_the_last_of_each_group(sizes, sent):
    results = []
    for order in permutations(sizes):
        stride, leaving = 1, set()
        for axis in order:
            for rank in range(prod(sizes.values())):
                number = rank // stride % sizes[axis]
                first, last = rank - number * stride, rank + (sizes[axis] - 1 - number) * stride
                if first // 8 != last // 8:
                    leaving.add(axis)
            stride *= sizes[axis]
        slow = sum(sent[axis] for axis in leaving) / 25e9
        results.append(
            (
                slow + sum(sent[axis] for axis in sizes if sizes[axis] > 1 and axis not in leaving) / 300e9,
                "-".join(sorted(leaving)),
            )
        )
    return min(results, key=lambda result: result[0])


# tokens_for_zero


@right("tokens_for_zero")
def by_each_pass(zero, ranks, recomputes, gradient_bytes, flops, bandwidth):
    sent = {"forward": 0 if zero == 0 else 2, "backward": gradient_bytes * (2 - (zero > 0)) + 2 * (zero == 3)}
    computed = {"forward": 2, "backward": 4 + 2 * recomputes}
    needed = [sent[name] * (ranks - 1) / ranks / computed[name] * flops / bandwidth for name in sent]
    return -int(-max(needed) // 1)


# mended_two_axes


def rows_of(x, targets, mesh):
    count, mine = len(x) // mesh["dp"].size(), mesh["dp"].get_local_rank()
    return x[mine * count : (mine + 1) * count], targets[mine * count : (mine + 1) * count]


@right("mended_two_axes")
def mean_by_the_loss(layer, parameters, x, targets, mesh, max_norm):
    replicas, along = mesh["dp"].size(), mesh["dp"].get_group()
    x, targets = rows_of(x, targets, mesh)
    loss = (layer(x) - targets).square().mean() / replicas
    loss.backward()
    for parameter in parameters:
        dist.all_reduce(parameter.grad, group=along)
    square = torch.stack([parameter.grad.norm() ** 2 for parameter in parameters]).sum()
    dist.all_reduce(square, group=mesh["tp"].get_group())
    norm = square.sqrt()
    if norm > max_norm:
        for parameter in parameters:
            parameter.grad *= max_norm / norm
    whole = loss.detach().clone()
    dist.all_reduce(whole, group=along)
    return whole, norm


@right("mended_two_axes")
def reduced_in_another_order(layer, parameters, x, targets, mesh, max_norm):
    replicas, along = mesh["dp"].size(), mesh["dp"].get_group()
    x, targets = rows_of(x, targets, mesh)
    loss = (layer(x) - targets).pow(2).mean()
    whole = loss.detach() / replicas
    dist.all_reduce(whole, group=along)
    loss.backward()
    for parameter in reversed(parameters):
        parameter.grad /= replicas
        dist.all_reduce(parameter.grad, group=along)
    square = sum((parameter.grad**2).sum() for parameter in parameters)
    dist.all_reduce(square, group=mesh["tp"].get_group())
    norm = square.sqrt()
    torch._foreach_mul_([parameter.grad for parameter in parameters], (max_norm / norm).clamp(max=1))
    return whole, norm


@right("mended_two_axes")
def over_the_world_too(*arguments):
    norm = '    dist.all_reduce(square, group=mesh["tp"].get_group())\n'
    return solved("mended_two_axes", norm, "    dist.all_reduce(square)\n    square /= replicas\n")(*arguments)
