"""Capturing: the same values, layers as their steps; what depends on data is refused in words."""

import pytest
import torch
from compilers.functions import DIFFERENTIABLE, SHAPES, attention, inputs_of, listed, mlp, softmax
from torch.fx import Interpreter

from tinydist.compilers import Program, capture, with_gradients
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
    ones = capture(lambda x: torch.ones_like(x).view(4) * x.view(4), torch.ones(2, 2))
    assert run(ones, [torch.eye(2)])[0].tolist() == [1, 0, 0, 1]


NO_DIM, NO_NUMBERS = torch.tensor(3.0), torch.ones(3, 0)


@pytest.mark.parametrize("function, x", [
    (lambda x: (x.mean(0), x.mean(1, keepdim=True), x.mean(None), x.mean([])), torch.eye(3)),
    (lambda x: (x.mean(dtype=torch.float64), x.mean(0, dtype=torch.float64)), torch.eye(3)),
    (lambda x: (x.sum(None, keepdim=True), x.sum(0, dtype=torch.float64)), torch.eye(3)),
    (lambda x: torch.ones_like(x, dtype=torch.float64), torch.eye(3)),
    (lambda x: torch.addmm(x[0], x, x, beta=0.5, alpha=2), torch.eye(3)),
    (lambda x: torch.baddbmm(x / 0, x, x, beta=0), torch.eye(3)[None]),
    (lambda x: (x.sum(0), x.amax(0, keepdim=True), x.mean(0), torch.softmax(x, 0)), NO_DIM),
    (lambda x: (x.mean(1), x.mean(), torch.softmax(x, 1), torch.log_softmax(x, 1)), NO_NUMBERS),
    (lambda x: torch.nn.functional.layer_norm(x, (0,)), NO_NUMBERS),
    (lambda x: (x.sum(0) * 2, torch.ones_like(x)), torch.arange(6).view(2, 3)),
    (lambda x: (x.mean(1), torch.nn.functional.layer_norm(x, (600,))), torch.full((1, 600), 200.0).half()),
    (with_gradients(torch.relu), torch.tensor([1.0, 0.0, torch.nan])),
])  # fmt: skip
def test_what_the_steps_of_a_layer_do_not_cover(function, x):
    """Another dtype, no dim, no numbers, half precision, NaN: there it is torch's own operator."""
    for found, wanted in zip(listed(Program(capture(function, x))(x)), listed(function(x)), strict=True):
        torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize("function, words", [
    (lambda x: 2 * x if x.sum() > 0 else x, "capture: the function asks for data of a tensor (if, while)"),
    (lambda x: x * x.max().item(), "capture: what aten._local_scalar_dense.default gives depends on data of a tensor"),
    (lambda x: x[x > 0], "capture: what aten.index.Tensor gives depends on data of a tensor"),
    (lambda x: (x + 1).mul_(2), "capture: aten.mul_.Tensor writes in place: use the operator that gives a new tensor"),
    (lambda x: x + NO_DIM, "capture: the function uses a tensor that is not one of its inputs"),
    (lambda x: x + torch.tensor(3.0), "capture: the function uses a tensor that is not one of its inputs"),
    (torch.nn.Linear(3, 3), "capture: the function uses a tensor that is not one of its inputs"),
])  # fmt: skip
def test_what_no_graph_can_hold_is_refused(function, words):
    with pytest.raises(ValueError) as error:
        capture(function, torch.ones(3))
    assert str(error.value).startswith(words)
