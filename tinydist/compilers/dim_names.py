"""Which dims of an operator's inputs and result are the same: those are cut together.

    mm          mk, kn -> mn            k is summed over: cut along k, each rank has a summand
    add         (12)  (2) -> (12)       a bias has the last dim of what it is added to
    transpose   12 -> 21

For a view there is no table. It is asked: strides are the names, and a view keeps them wherever they go. What joins and
splits dims (view) is followed by position: an axis stays where so many numbers stand before it.
"""

from math import prod
from typing import NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from .graph import is_view, value
from .operators import POINTWISE, REDUCTIONS

aten = torch.ops.aten
MATMULS = {aten.mm.default: ("mk", "kn", "mn"), aten.bmm.default: ("bmk", "bkn", "bmn")}
SUMS = {*MATMULS, aten.sum.dim_IntList}  # over dims that the result lacks
NAMES = (1000003, 1000033, 1000037, 1000039, 1000081, 1000099, 1000117, 1000121)  # primes: no product is one of them


class Sharded(NamedTuple):
    """Cut along ``dim``. ``blocks``: the dim is so many blocks, each cut (queries, keys, values in one weight)."""

    dim: int
    blocks: int = 1


def names_of_dims(node):
    """{input: a name for each dim}, the names of the result's dims. Dims without a name (None) cannot be cut."""
    inputs = [each for each in node.all_input_nodes if isinstance(value(each), torch.Tensor)]
    if node.target in MATMULS and len(inputs) == 2:
        one, other, made = MATMULS[node.target]
        return {node.args[0]: list(one), node.args[1]: list(other)}, list(made)
    if node.target in POINTWISE:
        shape = value(node).shape
        return {each: aligned(shape, value(each).shape) for each in inputs}, list(range(len(shape)))
    if node.target in REDUCTIONS and value(node).ndim == value(inputs[0]).ndim > 0:  # dims are kept
        names = list(range(value(node).ndim))
        dims = {dim % len(names) for dim in node.args[1]}
        return {inputs[0]: names}, [None if name in dims else name for name in names]
    if node.target is aten.stack.default:
        names = list(range(value(node).ndim))
        dim = (node.args[1] if len(node.args) > 1 else 0) % len(names)
        return {each: names[:dim] + names[dim + 1 :] for each in inputs}, names
    return through_view(node) if is_view(node) else ({}, [])


def aligned(shape, own):
    """Names of an input that is broadcast: its last dims are those of the result."""
    missing = len(shape) - len(own)
    return [missing + dim if size == shape[missing + dim] else None for dim, size in enumerate(own)]


def through_view(node):
    source = node.args[0]
    like = tree_leaves(value(source))[0]
    names = NAMES[: like.ndim]
    if len(names) < like.ndim:
        return {}, []
    probe = torch.empty_strided(like.shape, names, dtype=like.dtype, device="meta")
    whole = probe if isinstance(value(source), torch.Tensor) else [probe] * len(value(source))
    made = tree_leaves(node.target(whole, *node.args[1:]))[0]
    sizes = dict(zip(names, like.shape))
    return {source: list(names)}, [
        name if sizes.get(name) == size else None for name, size in zip(made.stride(), made.shape)
    ]


def reshaped(before, after, cut, ranks):
    """How a tensor is cut after a view, or None: the same parts, of the same numbers."""
    lead = prod(before[: cut.dim]) * cut.blocks  # so many stand before the axis that is cut
    for dim, size in enumerate(after):
        begin = prod(after[:dim])
        if begin and lead % begin == 0 and lead < begin * size:
            blocks = lead // begin
            return Sharded(dim, blocks) if size % (blocks * ranks) == 0 else None
    return None


def keeps_summands(node, partial):
    """May ranks compute this from their summands, and add up later? Through views and sums. (Through what multiplies,
    too; but what is added up once serves all who need it, so it is not put off for long.)"""
    if is_view(node) or node.target in (aten.clone.default, aten.stack.default):
        return partial == set(node.all_input_nodes)
    return node.target in (aten.add.Tensor, aten.sub.Tensor) and partial == set(node.args)
