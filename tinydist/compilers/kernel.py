"""A kernel: several operators as one nest of loops, which reads each input once and writes each output once.

    for row in rows:                         softmax: two reductions, three passes over a row
        m = -inf;   for i in row:  m = max(m, x[i])
        s = 0;      for i in row:  s = s + exp(x[i] - m)
                    for i in row:  y[i] = exp(x[i] - m) / s

No tensor holds what is in between: x - m and exp(x - m) are computed again in each pass, from a row that is in the
cache by then. Within a pass all iterations are alike, so a compiler may run several at once. A sum over all rows (a
bias has such a gradient) grows in the place of its result, row by row.

    moved    bytes of what is read and of what is written; the same operators one by one move their intermediates too

``levels`` says which pass can compute what: after the reductions that it needs. ``shape`` is the space of the loops;
its last ``reduced`` dims are a row (of a kernel without reductions: all dims).
"""

from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import torch
from torch.fx.node import map_arg

from .graph import value
from .operators import dtypes_of_numbers, is_pointwise, reduced_dims, summed_rows

MOST = 128  # operators of a kernel; TorchInductor's max_fusion_size is 64


@dataclass(eq=False)
class Kernel:
    nodes: list  # in the order of the graph
    shape: torch.Size
    reduced: int
    in_place: dict = field(default_factory=dict)  # what is written -> what was read there

    @cached_property
    def reads(self):
        """Nodes of others that it needs."""
        needed = dict.fromkeys(each for node in self.nodes for each in node.all_input_nodes)
        return [node for node in needed if node not in self.nodes]

    @cached_property
    def writes(self):
        """Its nodes that others need."""
        return [node for node in self.nodes if set(node.users) - set(self.nodes)]

    @property
    def moved(self):
        return sum(value(node).nbytes for node in self.reads + self.writes)

    @property
    def name(self):
        return "_".join(node.target.overloadpacket.__name__ for node in self.nodes)

    @cached_property
    def levels(self):
        """{node: how many reductions are on the longest path to it}"""
        levels = dict.fromkeys(self.reads, 0)
        for node in self.nodes:
            before = [levels[each] for each in node.all_input_nodes]
            levels[node] = max(before, default=0) + bool(reduced_dims(node))
        return levels

    def reductions(self, level):
        return [node for node in self.nodes if self.levels[node] == level and reduced_dims(node)]

    def strides(self, node):
        """Of a tensor in the space of the loops: 0 where it is repeated."""
        tensor = value(node)
        own = [0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride())]
        return [0] * (len(self.shape) - tensor.ndim) + own

    @cached_property
    def loops(self):
        """Of rows, and of a row: sizes, and {node: strides}. Dims that all tensors run through as one are one."""
        tensors = {node: self.strides(node) for node in self.reads + self.writes}
        cut = len(self.shape) - (self.reduced or len(self.shape))
        return merged(self.shape[:cut], tensors, 0), merged(self.shape[cut:], tensors, cut)


def merged(shape, tensors, begin):
    sizes, strides = [], {node: [] for node in tensors}
    for dim, size in enumerate(shape, begin):
        if size == 1:
            continue
        if sizes and all(strides[node][-1] == each[dim] * size for node, each in tensors.items()):
            sizes[-1] *= size
            for node, each in tensors.items():
                strides[node][-1] = each[dim]
        else:
            sizes.append(size)
            for node, each in tensors.items():
                strides[node].append(each[dim])
    return sizes, strides


def space_of(nodes):
    """(shape, reduced) of loops in which all of these fit, or None."""
    reduced = {node: dims for node in nodes if (dims := reduced_dims(node) or summed_rows(node))}
    early = [node for node in nodes if summed_rows(node) and not node.users.keys().isdisjoint(nodes)]
    if len(set(reduced.values())) > 1 or early:  # a sum of rows is known behind the last one
        return None
    if len(nodes) > MOST or len(dtypes_of_numbers(*nodes)) > 1:  # a mask may join operators of two dtypes
        return None
    k = max(reduced.values(), default=0)
    spaces = [value(node.args[0] if node in reduced else node).shape for node in nodes]
    full = max(spaces, key=prod)
    of_row = torch.Size([*full[: len(full) - k], *[1] * k])  # what a row has one of
    fits = [space == full or (space == of_row and node not in reduced) for node, space in zip(nodes, spaces)]
    return (full, k) if all(fits) else None


def run_with_torch(kernel):
    """The kernel, by torch's operators one after the other: what every generated one must equal."""

    def run(reads, writes):
        found = dict(zip(kernel.reads, reads))
        for node in kernel.nodes:
            args = map_arg(node.args, found.__getitem__)
            found[node] = node.target(*args, **node.kwargs)
        for node, target in zip(kernel.writes, writes):
            target.copy_(found[node])

    return run


def is_fusable(node):
    return node.op == "call_function" and bool(is_pointwise(node) or reduced_dims(node) or summed_rows(node))
