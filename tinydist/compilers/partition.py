"""The graph that each rank runs, of a graph of whole tensors and their layouts: smaller operators, and collectives.

    whole     mm [T, D] x [D, V]     gelu [T, V]      mm [T, V] x [V, D]
    a rank    mm [T, D] x [D, V/p]   gelu [T, V/p]    mm [T, V/p] x [V/p, D]   all_reduce [T, D]

One program for all ranks (SPMD): only what they hold differs. Sizes that are written in the graph (of views) become
those of a part. It is a graph as any other: it can be fused, planned and compiled.

Source: Xu et al. 2021, GSPMD (the SPMD partitioner).
"""

import torch
import torch.distributed as dist
from torch.fx import Graph
from torch.fx.node import map_arg

from ..rules import each_of, validate
from .dim_names import Sharded
from .graph import RESHAPES, results, value
from .sharding import REPLICATED, Layouts, local_shape

aten = torch.ops.aten
SIZES = RESHAPES | {aten.expand.default}  # their second argument is the shape of what they give


@validate(layouts=Layouts, group=dist.ProcessGroup)
def partition(layouts, group=None):
    """The graph for the ranks of ``group``, which takes and gives their parts."""
    ranks = dist.get_world_size(group)
    if ranks != layouts.ranks:
        raise ValueError(f"partition: layouts are for {layouts.ranks} ranks, but the group has {ranks}")
    return Partitioner(layouts, Resharding(group)).graph


@validate(layouts=Layouts, inputs=each_of(torch.Tensor, least=0), group=dist.ProcessGroup)
def take_parts(layouts, inputs, group=None):
    """This rank's parts of whole inputs, for the graph of ``partition``."""
    nodes = layouts.graph.find_nodes(op="placeholder")
    if len(inputs) != len(nodes):
        raise ValueError(f"take_parts: the graph has {len(nodes)} inputs, got {len(inputs)}")
    for place, (x, node) in enumerate(zip(inputs, nodes)):
        if x.shape != value(node).shape:
            rule = f"input {place} must have the shape that was captured, {list(value(node).shape)}"
            raise ValueError(f"take_parts: {rule}, got {list(x.shape)}")
    cuts = map(layouts.of, nodes)
    return [x if cut == REPLICATED else Resharding(group).take_part(x, cut) for x, cut in zip(inputs, cuts)]


@validate(layouts=Layouts, made=each_of(torch.Tensor, least=0), group=dist.ProcessGroup)
def gather_results(layouts, made, group=None):
    """Whole results, of the parts that all ranks have."""
    nodes, output = results(layouts.graph), layouts.graph.output_node()
    if len(made) != len(nodes):
        raise ValueError(f"gather_results: the graph has {len(nodes)} results, got {len(made)}")
    cuts = [layouts.wanted[output, node] for node in nodes]
    for place, (x, node, cut) in enumerate(zip(made, nodes, cuts)):
        part = local_shape(value(node).shape, cut, layouts.ranks)
        if list(x.shape) != part:
            raise ValueError(f"gather_results: result {place} must have a rank's shape, {part}, got {list(x.shape)}")
    return [x if cut == REPLICATED else Resharding(group).all_gather(x, cut) for x, cut in zip(made, cuts)]


class Partitioner:
    def __init__(self, layouts, resharding):
        self.layouts, self.resharding, self.graph, self.made = layouts, resharding, Graph(), {}
        for node in layouts.graph.nodes:
            if node.op == "placeholder":
                local = self.graph.placeholder(node.name)
                local.meta["val"] = self.local_value(node)
                self.made[node, layouts.of(node)] = local
            elif node.op == "call_function":
                self.made[node, layouts.of(node)] = self.call(node)
        self.graph.output(self.with_parts(layouts.graph.output_node(), layouts.graph.output_node().args[0]))

    def local_shape(self, node):
        return local_shape(value(node).shape, self.layouts.of(node), self.layouts.ranks)

    def local_value(self, node):
        """Of an input: as it is given, or, where ``take_part`` has copied it, contiguous."""
        cut = self.layouts.of(node) != REPLICATED
        return value(node).new_empty(self.local_shape(node)) if cut else value(node)

    def with_parts(self, user, args):
        return map_arg(args, lambda each: self.part(each, self.layouts.wanted[user, each]))

    def call(self, node):
        args = self.with_parts(node, node.args)
        if node.target in SIZES:
            args = (args[0], self.local_shape(node))
        local = self.graph.call_function(node.target, args, dict(node.kwargs))
        with value(node).fake_mode if isinstance(value(node), torch.Tensor) else value(node)[0].fake_mode:
            local.meta["val"] = node.target(*map_arg(args, value), **node.kwargs)
        return local

    def part(self, node, layout):
        """In this layout: it is there, or it is converted."""
        if (node, layout) not in self.made:
            step = next(each for each in self.layouts.conversions if (each.node, each.after) == (node, layout))
            x = self.part(node, step.before)
            if isinstance(step.before, Sharded):
                x = self.add(self.resharding.all_gather, x, node, step.before, REPLICATED)
            if step.collective == "all_reduce":
                x = self.add(self.resharding.all_reduce, x, node, None, REPLICATED)
            elif step.collective == "reduce_scatter":
                x = self.add(self.resharding.reduce_scatter, x, node, layout, layout)
            elif layout != REPLICATED:
                x = self.add(self.resharding.take_part, x, node, layout, layout)
            self.made[node, layout] = x
        return self.made[node, layout]

    def add(self, target, x, node, cut, after):
        local = self.graph.call_function(target, (x, cut) if cut else (x,))
        local.meta["val"] = value(x).new_empty(local_shape(value(node).shape, after, self.layouts.ranks))
        return local


class Resharding:
    """From one layout to another, on the ranks of a group."""

    def __init__(self, group=None):
        self.group = group

    def all_reduce(self, x):
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=self.group)
        return total

    def all_gather(self, x, cut):
        parts = x.new_empty(dist.get_world_size(self.group), *x.shape)
        dist.all_gather_single(parts.flatten(0, 1), x.contiguous(), group=self.group)
        blocks = parts.unflatten(cut.dim + 1, (cut.blocks, -1)).movedim(0, cut.dim + 1)  # [..., blocks, p, size/p, ...]
        return blocks.flatten(cut.dim, cut.dim + 2).contiguous()

    def reduce_scatter(self, x, cut):
        parts = self.parts(x, cut).contiguous()
        mine = torch.empty_like(parts[0])
        dist.reduce_scatter_single(mine, parts.flatten(0, 1), group=self.group)
        return mine.flatten(cut.dim, cut.dim + 1)

    def take_part(self, x, cut):
        part = self.parts(x, cut)[dist.get_rank(self.group)].flatten(cut.dim, cut.dim + 1)
        return part.clone(memory_format=torch.contiguous_format)

    def parts(self, x, cut):  # [p, ..., blocks, size/p, ...]
        sizes = cut.blocks, dist.get_world_size(self.group), -1
        return x.unflatten(cut.dim, sizes).movedim(cut.dim + 1, 0)
