"""Sharding propagation: layouts of the inputs say how every tensor of a graph is laid out over ranks, and what is sent.

    x [T, D]     replicated                         names of dims (dim_names.py)
    w [D, V]     cut along V        mm   [T, V/p]   tk, kv -> tv    v is cut, and so is the result: nothing is sent
                                    gelu [T, V/p]
    u [V, D]     cut along V        mm   [T, D]     tv, vd -> td    v is summed over: partial sums, an all-reduce

A tensor is replicated, sharded along a dim, or partial: each rank has a summand. Each operator, in order, takes its
inputs in those layouts that need the fewest bytes. Of a tensor of n bytes each of p ranks sends, on a ring,

    replicated -> sharded       0                   takes its part
    sharded    -> replicated    (p-1)/p n           all-gather
    partial    -> sharded       (p-1)/p n           reduce-scatter
    partial    -> replicated    2 (p-1)/p n         all-reduce
    sharded    -> otherwise     (p-1)/p n           all-gather, then takes its part

Nobody says "tensor parallelism" or "data parallelism": it follows from which inputs are cut. XLA propagates from
users to operands too, until nothing changes (sharding_propagation.cc); here it is forwards, once.

Source: Xu et al. 2021, GSPMD: General and Scalable Parallelization for ML Computation Graphs (sharding completion).
"""

import math
from typing import NamedTuple

from torch.fx import Graph, Node

from ..rules import count, integer, listed, many, must
from .dim_names import SUMS, Sharded, keeps_summands, names_of_dims, reshaped
from .graph import RESHAPES, results, value

REPLICATED, PARTIAL = "replicated", "partial"


class Conversion(NamedTuple):
    node: Node
    before: Sharded | str
    after: Sharded | str

    @property
    def collective(self):
        if self.before == self.after or self.before == REPLICATED:
            return ""
        summed = "all_reduce" if self.after == REPLICATED else "reduce_scatter"
        return summed if self.before == PARTIAL else "all_gather"

    def sent(self, ranks):
        """Bytes of each rank."""
        times = {"": 0, "all_reduce": 2}.get(self.collective, 1)
        whole = value(self.node)  # or a list of them, which no collective takes
        return times * (ranks - 1) * getattr(whole, "nbytes", math.inf) / ranks if times else 0


class Layouts:
    """The layouts of all tensors of ``graph`` on ``ranks`` ranks.

    inputs:   for each: the dim along which it is cut, a Sharded, or None: it is replicated.
    outputs:  the same for what the graph returns; None: all replicated; "as they come": with nothing more sent.
    """

    def __init__(self, graph, ranks, inputs, outputs=None):
        must("Layouts", "graph", Graph, graph)
        must("Layouts", "ranks", listed, ranks)
        self.graph, self.ranks, self.conversions = graph, ranks, []
        self.there = {}  # node -> its layouts, the first as it is made
        self.wanted = {}  # (user, node) -> layout
        for node, layout in zip(*self._given("inputs", graph.find_nodes(op="placeholder"), inputs)):
            self.there[node] = [layout]
        for node in graph.nodes:
            if node.op == "call_function":
                self._choose(node)
        returned = results(graph)
        if outputs is None:
            outputs = [None] * len(returned)
        elif isinstance(outputs, str) and outputs == "as they come":
            outputs = [self.of(node) if isinstance(self.of(node), Sharded) else None for node in returned]
        for node, layout in zip(*self._given("outputs", returned, outputs)):
            self._convert(node, graph.output_node(), layout)

    def of(self, node):
        return self.there[node][0]

    @property
    def sent(self):
        """Bytes that each rank sends."""
        return sum(each.sent(self.ranks) for each in self.conversions)

    @property
    def collectives(self):
        """[(name, shape of the whole tensor)]"""
        return [(each.collective, list(value(each.node).shape)) for each in self.conversions if each.collective]

    def _given(self, name, nodes, layouts):
        must("Layouts", name, many, layouts)
        if len(layouts) != len(nodes):
            raise ValueError(f"Layouts: there are {len(nodes)} {name}, got {len(layouts)} layouts")
        found = [REPLICATED if each is None else Sharded(each) if integer(each) else each for each in layouts]
        for node, layout in zip(nodes, found):
            if layout != REPLICATED:
                must("Layouts", name, Sharded, layout)
                shape, (dim, blocks) = list(value(node).shape), layout
                must("Layouts", f"dim of {node}", integer, dim)
                must("Layouts", f"blocks of {node}", count, blocks)
                if not 0 <= dim < len(shape) or shape[dim] % (blocks * self.ranks):
                    rule = f"must have dim {dim}, divisible by {self.ranks} ranks x {blocks} blocks"
                    raise ValueError(f"Layouts: {node} of shape {shape} {rule}")
        return nodes, found

    def _choose(self, node):
        inputs = node.all_input_nodes
        ways = [({each: REPLICATED for each in inputs}, REPLICATED), *self._ways(node)]

        def cost(way):
            changes = [self._from_nearest(each, layout) for each, layout in way[0].items()]
            return sum(each.sent(self.ranks) for each in changes), sum(each.before != each.after for each in changes)

        way, layout = min(ways, key=cost)
        for each, wanted in way.items():
            self._convert(each, node, wanted)
        self.there[node] = [layout]

    def _from_nearest(self, node, layout):
        """From a layout that it has already."""
        ways = [Conversion(node, layout if layout in self.there[node] else each, layout) for each in self.there[node]]
        return min((each for each in ways if layout != PARTIAL or each.before == PARTIAL), key=self._bytes)

    def _bytes(self, conversion):
        return conversion.sent(self.ranks)

    def _convert(self, node, user, layout):
        self.wanted[user, node] = layout
        if layout not in self.there[node]:
            self.conversions.append(self._from_nearest(node, layout))
            self.there[node].append(layout)

    def _ways(self, node):
        """({input: its layout}, layout of the result): for each dim along which an input is cut, and for sums."""
        cuts = [(each, cut) for each in node.all_input_nodes for cut in self.there[each] if isinstance(cut, Sharded)]
        if node.target in RESHAPES:
            for x, cut in cuts:
                after = reshaped(value(x).shape, value(node).shape, cut, self.ranks)
                if after:
                    yield {x: cut}, after
        else:
            given, made = names_of_dims(node)
            for x, cut in cuts:
                name = given[x][cut.dim] if x in given else None
                if name is not None and (name in made or node.target in SUMS):
                    way = {each: cut_along(names, name, cut.blocks) for each, names in given.items()}
                    yield way, PARTIAL if name not in made else cut_along(made, name, cut.blocks)
        partial = {each for each in node.all_input_nodes if PARTIAL in self.there[each]}
        if partial and keeps_summands(node, partial):
            yield {each: PARTIAL if each in partial else REPLICATED for each in node.all_input_nodes}, PARTIAL


def cut_along(names, name, blocks):
    return Sharded(names.index(name), blocks) if name in names else REPLICATED


def local_shape(shape, layout, ranks):
    """Of a rank's part."""
    if not isinstance(layout, Sharded):
        return list(shape)
    return [size // ranks if dim == layout.dim else size for dim, size in enumerate(shape)]
