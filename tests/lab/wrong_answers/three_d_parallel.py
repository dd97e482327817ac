"""Wrong answers to the exercises of 11_three_d_parallel: the property that rejects each, and what it is told."""

from math import prod

import torch
import torch.distributed as dist
from lab.registered import collection

WRONG_ANSWERS, wrong = collection()


# groups


@wrong("groups", "values", "further apart")
def runs_of_neighbors(sizes, order, along):
    size = prod(sizes[axis] for axis in along.split("-"))
    return torch.arange(prod(sizes.values())).reshape(-1, size).tolist()


@wrong("groups", "values", "`order` begins with the axis that counts fastest")
def first_axis_slowest(sizes, order, along):
    axes, wanted = order.split("-"), along.split("-")
    block = torch.arange(prod(sizes.values())).view([sizes[axis] for axis in axes])
    dims = sorted(range(len(axes)), key=lambda place: axes[place] in wanted)
    return block.permute(dims).reshape(-1, prod(sizes[axis] for axis in wanted)).tolist()


@wrong("groups", "runs", "each of 8 ranks is in one group")
def mine_alone(sizes, order, along):
    return [list(range(prod(sizes[axis] for axis in along.split("-"))))]


@wrong("groups", "runs", "each of 8 ranks is in one group")
def nothing(sizes, order, along):
    return []


@wrong("groups", "values", "agree in all others")
def those_that_agree(sizes, order, along):
    axes, wanted = order.split("-")[::-1], along.split("-")
    block = torch.arange(prod(sizes.values())).view([sizes[axis] for axis in axes])
    dims = sorted(range(len(axes)), key=lambda place: axes[place] not in wanted)
    return block.permute(dims).reshape(-1, prod(sizes[axis] for axis in axes if axis not in wanted)).tolist()


@wrong("groups", "values", "order of their first ranks")
def groups_in_another_order(sizes, order, along):
    axes, wanted = order.split("-")[::-1], along.split("-")
    block = torch.arange(prod(sizes.values())).view([sizes[axis] for axis in axes])
    others = [place for place, axis in enumerate(axes) if axis not in wanted]
    inside = [place for place, axis in enumerate(axes) if axis in wanted]
    return block.permute(*others, *inside).reshape(-1, prod(sizes[axis] for axis in wanted)).tolist()[::-1]


# clip


def summed(square, mesh, axes):
    for axis in axes:
        dist.all_reduce(square, group=mesh[axis].get_group() if axis else None)
    return square


def multiplied(gradients, max_norm, norm):
    for gradient, _ in gradients:
        gradient *= min(1.0, max_norm / float(norm))
    return norm


def weighed(gradients, mesh, **weights):
    all_of_it = {"cut": 1.0, "copied": 1 / mesh["tp"].size(), "tied": float(mesh["pp"].get_local_rank() == 0)}
    return sum((all_of_it | weights)[kind] * gradient.square().sum() for gradient, kind in gradients)


@wrong("clip", "values", "and it is one parameter: each of t copies counts 1/t")
def copies_in_full(gradients, max_norm, mesh):
    return multiplied(gradients, max_norm, summed(weighed(gradients, mesh, copied=1), mesh, ("tp", "pp")).sqrt())


@wrong("clip", "values", "once in each of its two stages")
def tied_twice(gradients, max_norm, mesh):
    return multiplied(gradients, max_norm, summed(weighed(gradients, mesh, tied=1), mesh, ("tp", "pp")).sqrt())


@wrong("clip", "values", "Replicas have the same gradients")
def over_the_world(gradients, max_norm, mesh):
    return multiplied(gradients, max_norm, summed(weighed(gradients, mesh), mesh, [None]).sqrt())


@wrong("clip", "values", "one part of each matrix")
def along_the_pipeline_only(gradients, max_norm, mesh):
    return multiplied(gradients, max_norm, summed(weighed(gradients, mesh), mesh, ["pp"]).sqrt())


@wrong("clip", "values", "1 at most")
def made_longer(gradients, max_norm, mesh):
    norm = summed(weighed(gradients, mesh), mesh, ("tp", "pp")).sqrt()
    for gradient, _ in gradients:
        gradient *= max_norm / norm
    return norm


@wrong("clip", "bytes", "")
def all_gradients_sent(gradients, max_norm, mesh):
    square = weighed(gradients, mesh)
    for axis in ("tp", "pp"):
        found = [torch.empty(64, dtype=square.dtype) for _ in range(mesh[axis].size())]
        dist.all_gather(found, square.expand(64).contiguous(), group=mesh[axis].get_group())
        square = sum(each[0] for each in found)
    return multiplied(gradients, max_norm, square.sqrt())


@wrong("clip", "runs", "where the norm is right")
def returns_nothing(gradients, max_norm, mesh):
    multiplied(gradients, max_norm, summed(weighed(gradients, mesh), mesh, ("tp", "pp")).sqrt())


@wrong("clip", "values", "as long as before")
def clips_copies(gradients, max_norm, mesh):
    norm = summed(weighed(gradients, mesh), mesh, ("tp", "pp")).sqrt()
    gradients[:] = [(gradient * min(1.0, max_norm / float(norm)), kind) for gradient, kind in gradients]
    return norm


# place_axes


def seconds_of(sizes, sent, leaving):
    return sum(sent[axis] / (25e9 if axis in leaving else 300e9) for axis in sizes)


@wrong("place_axes", "values", "Other orders than tp, dp, pp may be better")
def always_as_megatron(sizes, sent):
    leaving, stride = [], 1
    for axis in ("tp", "dp", "pp"):
        stride *= sizes[axis]
        if stride > 8 and sizes[axis] > 1:
            leaving.append(axis)
    return seconds_of(sizes, sent, leaving), "-".join(sorted(leaving))


@wrong("place_axes", "values", "")
def pipelines_leave(sizes, sent):
    leaving = ["pp"] if sizes["pp"] > 1 and prod(sizes.values()) > 8 else []
    return seconds_of(sizes, sent, leaving), "-".join(leaving)


@wrong("place_axes", "values", "")
def everything_leaves(sizes, sent):
    leaving = sorted(axis for axis in sizes if sizes[axis] > 1)
    return seconds_of(sizes, sent, leaving), "-".join(leaving)


@wrong("place_axes", "values", "the number of seconds")
def names_only(sizes, sent):
    return 0.0, "pp"


# mended_two_axes


@wrong("mended_two_axes", "values", "rows belong to a replica")
def rows_for_each_rank(layer, parameters, x, targets, mesh, max_norm):
    return step(layer, parameters, x, targets, mesh, max_norm, rows=(dist.get_world_size(), dist.get_rank()))


@wrong("mended_two_axes", "values", "taken twice")
def mean_twice(layer, parameters, x, targets, mesh, max_norm):
    return step(layer, parameters, x, targets, mesh, max_norm, by=1 / mesh["dp"].size())


@wrong("mended_two_axes", "values", "The parts of the matrices are along tp")
def norm_over_replicas(layer, parameters, x, targets, mesh, max_norm):
    return step(layer, parameters, x, targets, mesh, max_norm, norm="dp")


@wrong("mended_two_axes", "values", "The others of its tensor group have parts, too")
def norm_of_this_rank(layer, parameters, x, targets, mesh, max_norm):
    return step(layer, parameters, x, targets, mesh, max_norm, norm=None)


@wrong("mended_two_axes", "values", "their gradients are added up")
def sum_over_replicas(layer, parameters, x, targets, mesh, max_norm):
    return step(layer, parameters, x, targets, mesh, max_norm, by=mesh["dp"].size())


@wrong("mended_two_axes", "runs", "where the loss and the norm are right")
def loss_alone(layer, parameters, x, targets, mesh, max_norm):
    return step(layer, parameters, x, targets, mesh, max_norm)[0]


def step(layer, parameters, x, targets, mesh, max_norm, rows=None, by=1.0, norm="tp"):
    replicas, along = mesh["dp"].size(), mesh["dp"].get_group()
    parts, mine = rows or (replicas, mesh["dp"].get_local_rank())
    x, targets = x.chunk(parts)[mine], targets.chunk(parts)[mine]
    loss = (layer(x) - targets).square().mean()
    loss.backward()
    for parameter in parameters:
        dist.all_reduce(parameter.grad, group=along)
        parameter.grad *= by / replicas
    square = sum(parameter.grad.square().sum() for parameter in parameters)
    if norm:
        dist.all_reduce(square, group=mesh[norm].get_group())
    for parameter in parameters:
        parameter.grad *= (max_norm / square.sqrt()).clamp(max=1.0)
    told = loss.detach().clone()
    dist.all_reduce(told, group=along)
    return told / replicas, square.sqrt()
