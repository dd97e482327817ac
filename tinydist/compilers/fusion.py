"""Fusion: operators that follow one another become one kernel, where their loops are the same.

    mm -> add -> tanh -> mul -> sum          mm    [add tanh mul sum]

Each operator begins as a group of its own. Along each edge of the graph, in order, the group that makes a tensor and
the one that needs it become one, if

    all of both fit in the loops of one kernel (kernel.py), and
    no path leaves the new group and comes back: then neither could run first.

    a = exp(x);  b = a @ w;  c = a + b       a and c share a shape and an edge, and still cannot be one kernel

A chain of k pointwise operators on n bytes moves 2 k n bytes one by one, and 2 n fused. Fusion helps nothing where
arithmetic takes longer than memory: a matmul of large matrices is left to torch. Random operators keep their order, as
each moves the generator on.

Sources: Chen et al. 2018, TVM (which operators may be fused); Ansel et al. 2024, PyTorch 2 (TorchInductor's scheduler).
"""

from itertools import pairwise

import torch
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from ..rules import must
from .graph import Graph, is_view, value
from .kernel import Kernel, is_fusable, space_of


def fuse(graph):
    """The steps of the graph, in an order in which they can run: each a Kernel, or a node that is left to torch."""
    must("fuse", "graph", Graph, graph)
    groups = Groups(graph)
    for node in graph.nodes:
        for maker in node.all_input_nodes:
            groups.join(maker, node)
    return groups.steps()


class Groups:
    def __init__(self, graph):
        self.order = {node: place for place, node in enumerate(graph.nodes)}
        self.of = {node: [node] for node in graph.nodes}
        self.makers = {node: [*node.all_input_nodes] for node in graph.nodes}
        self.users = {node: [*node.users] for node in graph.nodes}
        for one, other in pairwise(filter(is_random, graph.nodes)):
            self.makers[other].append(one)
            self.users[one].append(other)

    def join(self, maker, user):
        one, other = self.of[maker], self.of[user]
        if one is other or not (is_fusable(maker) and is_fusable(user)):
            return
        both = sorted(one + other, key=self.order.get)
        if space_of(both) and not self.comes_back(both):
            self.of.update(dict.fromkeys(both, both))

    def comes_back(self, both):
        """Does what runs after these include what they need?"""
        inside, seen = set(both), set()
        ahead = [user for node in both for user in self.users[node] if user not in inside]
        while ahead:
            node = ahead.pop()
            if node in inside:
                return True
            if node not in seen:
                seen.add(node)
                ahead += [user for each in self.of[node] for user in self.users[each]]
        return False

    def steps(self):
        """Each group once all that it needs has run."""
        found, done = [], set()

        def run(node):
            group = self.of[node]
            if id(group) in done:
                return
            done.add(id(group))
            for each in group:
                for maker in self.makers[each]:
                    run(maker)
            found.append(Kernel(group, *space_of(group)) if is_fusable(node) else node)

        for node in self.order:
            run(node)
        return found


def is_random(node):
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def moved(step):
    """Bytes that a step reads and writes."""
    if isinstance(step, Kernel):
        return step.moved
    if step.op != "call_function" or is_view(step):
        return 0
    tensors = [each for each in tree_leaves((step.args, step)) if isinstance(each, Node)]  # x @ x reads x twice
    return sum(each.nbytes for node in tensors for each in tree_leaves(value(node)))
