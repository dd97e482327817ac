"""Split backward (zero bubble), and backward with activation recomputation.

Split: first the input gradient, which another rank waits for; weight gradients later.

    y <- matmul <- tanh <- matmul <- x        the way to the input: nodes of autograd's graph from which x is reached
           |                 |
           t                 t                branches that lead to weights alone
           |                 |
           w2                w1

The first half runs backward to x only, and saves the incoming gradient of each node that has a branch. The second half
continues from there into the branches, one node at a time. Nothing is computed twice: a node computes only the
gradients that are requested. Most of the graph is needed by both and is held until the second half is done.

Where the input takes no gradient (tokens), the first half has nothing to do, and the second is all of backward.

Activation recomputation: only inputs are saved between forward and backward; dropout masks are reproduced exactly.

    before      F ... R B       as an action of the schedule, right before backward: the rank runs forward again while
                                it waits for the gradient (GPipe)
    inside      F ...  RB       in backward itself, once the gradient is there (torch.utils.checkpoint, Megatron-LM)

A third more compute, and a bubble of (P-1)(F+B) before, (P-1)(2F+B) inside, in GPipe and 1F1B. Held for each microbatch
between F and B: its input, instead of all that backward needs; while its backward runs or waits, all of it.
Sources: Qi et al., Zero Bubble Pipeline Parallelism, 2024, section 2 (torch.distributed.pipelining does the same); Chen
et al., Training Deep Nets with Sublinear Memory Cost, 2016; Huang et al., GPipe, 2019, section 2.3.
"""

from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils.checkpoint import get_device_states, set_device_states

from ..annotate import region
from ..rules import validate
from .schedule import BACKWARD, BACKWARD_INPUT, RECOMPUTE, Schedule


def edge_of(output) -> GradientEdge | None:
    """Where backward begins; the tensor itself need not be held for it. None if nothing in it takes a gradient."""
    return get_gradient_edge(output) if output.requires_grad else None


@validate(edge=GradientEdge | None, gradient=torch.Tensor | None, input=torch.Tensor)
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


# Forward once more.


@validate(schedule=Schedule)
def with_recomputation(schedule):
    """R right before each backward that has none yet."""
    there = {part for _, _, part in schedule.all_parts() if part.kind == RECOMPUTE}
    programs = [
        tuple(each for step in program for each in [*(set(again(step)) - there), step]) for program in schedule.programs
    ]
    return replace(schedule, programs=tuple(programs))


def again(each):
    return [part._replace(kind=RECOMPUTE) for part in each.parts if part.kind in (BACKWARD, BACKWARD_INPUT)]


class ForwardAgain:
    """``run(input)`` without a graph now, in ``output``; and with one when ``edge()`` asks where backward begins."""

    def __init__(self, run, input):
        self.run, self.input = run, input
        self.state = random_state(input)
        with torch.no_grad():
            self.output = run(input)

    def edge(self):
        now = random_state(self.input)
        set_random_state(self.state)
        try:
            with region("recompute"):
                return edge_of(self.run(self.input))
        finally:
            set_random_state(now)


def random_state(tensor):
    """Of the processor, and of the device that the tensor is on."""
    return torch.get_rng_state(), *get_device_states(tensor)


def set_random_state(state):
    processor, devices, states = state
    torch.set_rng_state(processor)
    set_device_states(devices, states)
