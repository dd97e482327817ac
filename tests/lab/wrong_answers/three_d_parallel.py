"""Wrong answers to the exercises of 11_three_d_parallel: the property that rejects each, and what it is told."""

from math import prod

import torch
import torch.distributed as dist
from lab.registered import collection, solved

WRONG_ANSWERS, wrong = collection()


# groups


@wrong("groups", "runs", "the ranks [0, 1]")
def mine_alone(sizes, order, along):
    return [list(range(prod(sizes[axis] for axis in along.split("-"))))]


@wrong("groups", "runs", "the ranks []")
def nothing(sizes, order, along):
    return []


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


@wrong("clip", "bytes", "sends 512 bytes")
def all_gradients_sent(gradients, max_norm, mesh):
    square = weighed(gradients, mesh)
    for axis in ("tp", "pp"):
        found = [torch.empty(64, dtype=square.dtype) for _ in range(mesh[axis].size())]
        dist.all_gather(found, square.expand(64).contiguous(), group=mesh[axis].get_group())
        square = sum(each[0] for each in found)
    return multiplied(gradients, max_norm, square.sqrt())


@wrong("clip", "runs", "the norm is right")
def returns_nothing(gradients, max_norm, mesh):
    multiplied(gradients, max_norm, summed(weighed(gradients, mesh), mesh, ("tp", "pp")).sqrt())


@wrong("clip", "values", "the cut gradient, number 0")
def clips_copies(gradients, max_norm, mesh):
    norm = summed(weighed(gradients, mesh), mesh, ("tp", "pp")).sqrt()
    gradients[:] = [(gradient * min(1.0, max_norm / float(norm)), kind) for gradient, kind in gradients]
    return norm


@wrong("clip", "values", "With 3 ranks, pp 1 x dp 1 x tp 3")
def always_two_copies(gradients, max_norm, mesh):
    square = weighed(gradients, mesh, copied=0.5 if mesh["tp"].size() > 1 else 1.0)
    return multiplied(gradients, max_norm, summed(square, mesh, ("tp", "pp")).sqrt())


# place_axes


def seconds_of(sizes, sent, leaving):
    return sum(sent[axis] / (25e9 if axis in leaving else 300e9) for axis in sizes)


@wrong("place_axes", "values", "All of an axis passes at the network's speed")
def everything_leaves(sizes, sent):
    leaving = sorted(axis for axis in sizes if sizes[axis] > 1)
    return seconds_of(sizes, sent, leaving), "-".join(leaving)


@wrong("place_axes", "values", "the number of seconds")
def names_only(sizes, sent):
    return 0.0, "pp"


@wrong("place_axes", "values", "is 'pp-dp', where 'dp-pp' is right")
def in_the_order_of_sizes(sizes, sent):
    joined = '"-".join(axis for axis in sizes if axis in leaving)'
    return solved("place_axes", '"-".join(sorted(leaving))', joined)(sizes, sent)


@wrong("place_axes", "values", "whatever sent says")
def what_one_rank_would_send(sizes, sent):
    return solved("place_axes", " if sizes[axis] > 1)", ")")(sizes, sent)


# tokens_for_zero


@wrong("tokens_for_zero", "values", "right")
def the_inequality_of_the_notebook(zero, ranks, recomputes, gradient_bytes, flops, bandwidth):
    return round(flops / bandwidth)


@wrong("tokens_for_zero", "values", "right")
def all_in_both_passes(*arguments):
    return solved("tokens_for_zero", "if zero == 3:", "if zero:")(*arguments)


@wrong("tokens_for_zero", "values", "the result is 3281.25")
def a_float(*arguments):
    return solved("tokens_for_zero", "math.ceil(", "(")(*arguments)


# mended_two_axes


@wrong("mended_two_axes", "values", "The loss is the sum over the replicas")
def the_loss_is_a_sum(*arguments):
    return solved("mended_two_axes", "told / replicas", "told")(*arguments)


@wrong("mended_two_axes", "values", "The gradients are added up along tp")
def gradients_along_tp(*arguments):
    along = 'dist.all_reduce(parameter.grad, group=mesh["dp"]'
    return solved("mended_two_axes", along, along.replace("dp", "tp"))(*arguments)


@wrong("mended_two_axes", "values", "This is the square of the norm")
def no_root(*arguments):
    return solved("mended_two_axes", "square.sqrt()", "square")(*arguments)


@wrong("mended_two_axes", "runs", "returned tensor")
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
