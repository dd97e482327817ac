"""Capturing: the same values, layers as their steps; what depends on data is refused in words."""

import pytest
import torch
from compilers.functions import DIFFERENTIABLE, SHAPES, attention, inputs_of, listed, mlp, softmax
from torch.fx import Interpreter

from tinydist.compilers import capture, with_gradients
from tinydist.compilers.graph import RESHAPES, value
from tinydist.compilers.operators import POINTWISE, REDUCTIONS

CASES = [(each, inputs_of(each)) for each in SHAPES]
CASES += [(with_gradients(each), inputs_of(each)) for each in DIFFERENTIABLE]


def run(graph, inputs):
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    return listed(Interpreter(module).run(*inputs))


@pytest.mark.parametrize("function, inputs", CASES)
def test_a_graph_gives_what_its_function_gives(function, inputs):
    graph = capture(function, *inputs)
    for found, wanted in zip(run(graph, inputs), listed(function(*inputs)), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default):
        assert value(node).shape == (value(node.args[0]).shape[0], value(node.args[1]).shape[1])


def names(graph):
    return [node.target.overloadpacket.__name__ for node in graph.nodes if node.target in POINTWISE | REDUCTIONS]


def test_softmax_is_five_steps():
    assert names(capture(softmax, *inputs_of(softmax)))[1:] == ["amax", "sub", "exp", "sum", "div"]


def test_no_view_stands_between_pointwise_operators():
    """nn.Linear adds its bias to tokens without a batch, and GELU takes them with one."""
    for function in (mlp, attention):
        for node in capture(function, *inputs_of(function)).nodes:
            if node.target in RESHAPES and node.args[0].target in POINTWISE:
                assert not any(user.target in POINTWISE for user in node.users)


def test_an_identity_and_a_constant_have_graphs_too():
    assert run(capture(lambda x: x, torch.ones(2)), [torch.ones(2)])[0].tolist() == [1, 1]
    assert run(capture(lambda: torch.full((2,), 3.0)), [])[0].tolist() == [3, 3]


@pytest.mark.parametrize("function, words", [
    (lambda x: 2 * x if x.sum() > 0 else x, "capture: the function asks for data of a tensor (if, while)"),
    (lambda x: x * x.max().item(), "capture: what aten._local_scalar_dense.default gives depends on data of a tensor"),
    (lambda x: x[x > 0], "capture: what aten.index.Tensor gives depends on data of a tensor"),
    (lambda x: (x + 1).mul_(2), "capture: aten.mul_.Tensor writes in place: use the operator that gives a new tensor"),
])  # fmt: skip
def test_what_no_graph_can_hold_is_refused(function, words):
    with pytest.raises(ValueError) as error:
        capture(function, torch.ones(3))
    assert str(error.value).startswith(words)
