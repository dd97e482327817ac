"""A function as a graph of operators, each with the shape, strides and dtype of what it gives.

    def f(x, w, b):                            x, w, b                placeholders
        return torch.relu(x @ w + b)           mm     [T, V]          a matmul: torch's own
                                               add    [T, V]          pointwise
                                               relu   [T, V]          pointwise

The function runs once, on fake tensors: they have shapes, and no data. Whatever it does is written down below autograd,
so a function that asks for gradients gives one graph of forward and backward. An ``if`` on the data of a tensor cannot
be written down: there is no data, and tracing fails (torch.compile breaks the graph in two at that place).

Layers that are several steps (softmax, layer norm, GELU's backward) are written as those steps (decompositions.py);
then the graph is made easier to fuse. Views that stand between two pointwise operators move before both.

Source: Reed et al. 2022, torch.fx: Practical Program Capture and Transformation for Deep Learning in Python.
"""

import operator
from functools import wraps

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from ..rules import each_of, function, must, validate
from .decompositions import DECOMPOSITIONS
from .operators import is_pointwise

aten = torch.ops.aten
RESHAPES = {aten.view.default, aten._unsafe_view.default}
SAME = {aten.detach.default, aten.alias.default}  # return their argument
NOT_GIVEN = "the function uses a tensor that is not one of its inputs (a parameter, torch.tensor): pass it as an input"


@validate(function=function)
def capture(function, *inputs) -> Graph:
    """The graph of ``function(*inputs)``: tensors, of which only shapes, strides and dtypes matter."""
    must("capture", "inputs", each_of(torch.Tensor, least=0), inputs)
    inputs = [each.detach().requires_grad_(each.requires_grad) for each in inputs]
    try:
        graph = make_fx(function, decomposition_table=DECOMPOSITIONS, tracing_mode="fake")(*inputs).graph
    except GuardOnDataDependentSymNode as error:
        raise ValueError("capture: the function asks for data of a tensor (if, while), and there is none") from error
    except AssertionError as error:
        if "FakeTensor" not in str(error):
            raise
        raise ValueError(f"capture: {NOT_GIVEN}") from error
    check(graph)
    for simplify in (drop_same, move_views_up, drop_expands, Graph.eliminate_dead_code):
        simplify(graph)
    graph.lint()
    return graph


def check(graph):
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if getattr(node.target, "_schema", None) and node.target._schema.is_mutable:
            raise ValueError(f"capture: {node.target} writes in place: use the operator that gives a new tensor")
        known = [each for each in tree_leaves(node.meta.get("val")) if isinstance(each, torch.Tensor)]
        if not (known and all(type(n) is int for each in known for n in each.shape)):
            raise ValueError(f"capture: what {node.target} gives depends on data of a tensor, and there is none")
    if graph.find_nodes(op="get_attr"):
        raise ValueError(f"capture: {NOT_GIVEN}")


@validate(function=function)
def with_gradients(function):
    """The function that gives ``function``'s results, and then the gradient of their sum for each input."""

    @wraps(function)
    def step(*inputs):
        with torch.enable_grad():
            inputs = [each.detach().requires_grad_() for each in inputs]
            results = function(*inputs)
            results = results if isinstance(results, tuple) else (results,)
            gradients = torch.autograd.grad(results, inputs, [torch.ones_like(each) for each in results])
        return *(each.detach() for each in results), *gradients

    return step


def is_view(node):
    """Is its result in the bytes of its input?"""
    return node.target in (operator.getitem, aten._unsafe_view.default) or getattr(node.target, "is_view", False)


def value(node):
    """The fake tensor of a node's result."""
    return node.meta["val"]


def results(graph):
    """The nodes that the graph returns, in order; one that is returned twice is there twice."""
    return [each for each in tree_leaves(graph.output_node().args[0]) if isinstance(each, Node)]


def add_node(graph, before, target, args):
    """A call, with the fake tensor of its result."""
    with graph.inserting_before(before):
        node = graph.call_function(target, args)
    tensors = [value(each) for each in node.all_input_nodes]
    with tensors[0].fake_mode:
        node.meta["val"] = target(*map_arg(args, value))
    return node


def drop_same(graph):
    """Drop detach, and views that keep the shape."""
    for node in list(graph.nodes):
        if node.target in SAME or is_unchanged(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def is_unchanged(node):
    return node.target in RESHAPES | {aten.expand.default} and value(node.args[0]).shape == value(node).shape


def move_views_up(graph):
    """view(add(a, b)) is add(view(a), view(b)), if a and b have the shape of their sum, or are of its last dim."""
    for node in reversed(list(graph.nodes)):
        inner = node.args[0] if node.target in RESHAPES else None
        between = isinstance(inner, Node) and is_pointwise(inner) and any(map(is_pointwise, node.users))
        if not between or len(inner.users) > 1:
            continue
        before, after = value(inner).shape, value(node).shape
        tensors = [each for each in inner.all_input_nodes if value(each).shape == before]
        others = [value(each).shape for each in inner.all_input_nodes if each not in tensors]
        last = not others or (before[-1:] == after[-1:] and all(len(shape) <= 1 for shape in others))
        if tensors and last and all(value(each).is_contiguous() for each in tensors):
            moved = {each: add_node(graph, inner, aten.view.default, (each, list(after))) for each in tensors}
            args = map_arg(inner.args, lambda each, moved=moved: moved.get(each, each))
            node.replace_all_uses_with(add_node(graph, inner, inner.target, args))
            graph.erase_node(node)
            graph.erase_node(inner)


def drop_expands(graph):
    """A pointwise operator broadcasts: it reads what was expanded."""
    for node in graph.nodes:
        if not is_pointwise(node):
            continue
        for expand in [each for each in node.all_input_nodes if each.target is aten.expand.default]:
            others = [value(each).shape for each in node.all_input_nodes if each is not expand]
            if torch.broadcast_shapes(value(expand.args[0]).shape, *others) == value(node).shape:
                node.replace_input_with(expand, expand.args[0])
