"""Backward in two halves: the gradient of the input, which another rank waits for; those of the weights, later.

    y <- matmul <- tanh <- matmul <- x        the way to the input: nodes of autograd's graph from which x is reached
           |                 |
           t                 t                branches that lead to weights alone
           |                 |
           w2                w1

The first half runs backward to x alone, and keeps the gradient that arrives at each node that has a branch. The second
half goes on from there into the branches, a node at a time. Nothing is computed twice: a node computes the gradients
that are asked of it. What both halves need, most of the graph, is held until the second is done.

Where the input takes no gradient (tokens), the first half has nothing to do, and the second is all of backward.
Source: Qi et al., Zero Bubble Pipeline Parallelism, 2024, section 2; torch.distributed.pipelining does the same.
"""

from collections import defaultdict
from contextlib import ExitStack, contextmanager

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from ..rules import takes


def edge_of(output) -> GradientEdge | None:
    """Where backward begins; the tensor itself need not be held for it. None if nothing in it takes a gradient."""
    return get_gradient_edge(output) if output.requires_grad else None


@takes(edge=GradientEdge | None, gradient=torch.Tensor | None, input=torch.Tensor)
class SplitBackward:
    """From ``edge``, the output's, to ``input``. ``input_gradient()`` first, then ``accumulate_weights()``."""

    def __init__(self, edge, gradient, input):
        self.edge, self.gradient, self.input = edge, gradient, input
        self.leaves = {}  # node -> the leaves that its branches lead to
        self.branches = {}  # node -> the gradients that arrived there

    def input_gradient(self):
        """The gradient of the input, or None if it takes none or is not used. Parameters get nothing yet."""
        if not (self.input.requires_grad and self.edge):
            return None
        self.leaves = branches_of(self.edge.node, get_gradient_edge(self.input).node)
        with watched(self.leaves, self.branches.__setitem__):
            (found,) = torch.autograd.grad(self.edge, self.input, self.gradient, retain_graph=True, allow_unused=True)
        self.edge = None
        return found

    def accumulate_weights(self):
        """Add to the parameters' ``.grad``."""
        if not self.input.requires_grad:
            if self.edge:
                torch.autograd.backward(self.edge, self.gradient)
            return
        shared = defaultdict(set)  # leaf -> the nodes whose branches lead to it
        for node, leaves in self.leaves.items():
            for leaf in leaves:
                shared[leaf].add(node)
        while self.leaves:
            node, leaves = self.leaves.popitem()
            others = set().union(*[shared[leaf] for leaf in leaves]) - {node}
            self._into_branches(node, leaves, others)

    def _into_branches(self, node, leaves, others):
        arrived = [(GradientEdge(node, place), each) for place, each in enumerate(self.branches.pop(node))]
        edges, gradients = zip(*[(edge, gradient) for edge, gradient in arrived if gradient is not None])
        # A parameter used twice is also reached through the other use, which counts for itself: nothing may pass there.
        with ExitStack() as stack:
            for other in others:
                stack.callback(other.register_prehook(zeros).remove)
            parameters = [leaf.variable for leaf in leaves]
            torch.autograd.backward(edges, gradients, retain_graph=True, inputs=parameters)


def zeros(gradients):
    return tuple(None if each is None else torch.zeros_like(each) for each in gradients)


def branches_of(top, bottom):
    """Node on the way from ``top`` to ``bottom`` -> the leaves (of parameters) that its branches lead to."""
    order, reaches = [], {}  # children before parents; does a node lead to bottom?
    stack = [(top, False)]
    while stack:
        node, seen = stack.pop()
        children = [child for child, _ in node.next_functions if child is not None]
        if seen:
            reaches[node] = node is bottom or any(reaches[child] for child in children)
            order.append(node)
        elif node not in reaches:
            reaches[node] = False
            stack.append((node, True))
            stack += [(child, False) for child in children]
    found = {}
    for node in order:
        if reaches[node] and node is not bottom:
            beside = [child for child, _ in node.next_functions if child is not None and not reaches[child]]
            leaves = leaves_below(beside)
            if leaves:
                found[node] = leaves
    return found


def leaves_below(nodes):
    found, stack, seen = [], list(nodes), set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node)
        stack += [child for child, _ in node.next_functions if child is not None]
    return found


@contextmanager
def watched(nodes, note):
    """While this lasts, ``note(node, gradients)`` is called with what arrives at each node."""
    handles = [node.register_prehook(lambda gradients, node=node: note(node, gradients)) for node in nodes]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
