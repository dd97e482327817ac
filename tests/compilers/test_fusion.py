"""Fusion: which operators become one kernel, in an order that can run; and what it saves."""

import pytest
import torch
from compilers.functions import DIFFERENTIABLE, SHAPES, chain, inputs_of, layer_norm, mlp, relu_sum, softmax
from compilers.test_graph import CASES
from hypothesis import given
from hypothesis import strategies as st

from tinydist.compilers import Program, capture, fuse, with_gradients
from tinydist.compilers.fusion import moved
from tinydist.compilers.kernel import Kernel, is_fusable, space_of
from tinydist.compilers.lifetimes import reads, writes


def kernels(function, *inputs):
    return [step for step in fuse(capture(function, *(inputs or inputs_of(function)))) if isinstance(step, Kernel)]


def check(graph):
    """Each operator runs once, after what it needs."""
    steps, there = fuse(graph), set()
    for step in steps:
        nodes = step.nodes if isinstance(step, Kernel) else [step]
        assert set(step.reads if isinstance(step, Kernel) else step.all_input_nodes) <= there
        assert there.isdisjoint(nodes)
        there |= set(nodes)
    assert there == set(graph.nodes)


@pytest.mark.parametrize("function, inputs", CASES)
def test_steps_can_run_in_their_order(function, inputs):
    check(capture(function, *inputs))


@pytest.mark.parametrize("function", [chain, softmax, layer_norm])
def test_a_chain_or_a_layer_is_one_kernel(function):
    (kernel,) = kernels(function)
    inputs = inputs_of(function)
    assert kernel.moved == sum(each.nbytes for each in (*inputs, function(*inputs)))


def test_a_sum_reads_n_where_one_by_one_moves_7n():
    x = torch.ones(1000)
    (kernel,) = kernels(lambda x: torch.relu(2 * x + 1).sum(), x)
    assert kernel.moved == x.nbytes + x.itemsize
    one_by_one = sum(value.nbytes * 2 for value in [x] * 3) + x.nbytes
    assert one_by_one == 7 * x.nbytes


def test_matmuls_are_left_to_torch_and_the_bias_joins_what_follows():
    names = [kernel.name for kernel in kernels(mlp)]
    assert names == ["add_mul_mul_erf_add_mul"]


def test_a_group_through_which_a_path_leaves_and_returns_is_none():
    def function(x):
        a = x.exp()
        return a + a @ x

    assert [kernel.name for kernel in kernels(function, torch.ones(3, 3))] == ["exp", "add"]


def test_gradients_of_weights_are_summed_over_rows_in_the_kernel_that_has_them():
    """Layer norm, forward and backward: all is read and written once."""
    inputs = inputs_of(layer_norm)
    (kernel,) = kernels(with_gradients(layer_norm), *inputs)
    assert kernel.moved == sum(each.nbytes for each in (*inputs, *with_gradients(layer_norm)(*inputs)))


def test_what_needs_a_sum_over_rows_is_another_kernel():
    found = kernels(lambda x: (2 * x).sum(0, keepdim=True).exp() * x, torch.ones(3, 4))
    assert [kernel.name for kernel in found] == ["mul_sum", "exp", "mul"]


def test_reductions_over_other_dims_are_two_kernels():
    found = kernels(lambda x: x.sum(2, keepdim=True).sum(1, keepdim=True) + 1, torch.ones(2, 3, 4))
    assert [kernel.name for kernel in found] == ["sum", "add"]  # the second sum is over a dim that is not the last


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from("+*@es")), min_size=1, max_size=12))
def test_any_graph_has_an_order(program):
    def function(x):
        found = [x]
        for one, other, what in program:
            a, b = found[one % len(found)], found[other % len(found)]
            found.append({"+": a + b, "*": a * b, "@": a @ b, "e": a.exp(), "s": a - b.sum(1, keepdim=True)}[what])
        return found[-1], found[len(found) // 2]

    check(capture(function, torch.ones(3, 3)))


def test_random_operators_keep_their_order():
    """A kernel that needs the second must not pull it before the first: each would get the other's numbers."""

    def function(x):
        y, first, second = 2 * x, torch.rand_like(x), torch.randn_like(x)
        return y + second, first

    x = torch.ones(4)
    torch.manual_seed(0)
    wanted = function(x)
    torch.manual_seed(0)
    assert all(map(torch.equal, Program(capture(function, x))(x), wanted))


def test_a_mask_does_not_join_operators_of_two_dtypes():
    found = kernels(lambda x, y: torch.where(x > 0, y, 2 * y), torch.ones(3), torch.ones(3, dtype=torch.float64))
    assert [kernel.name for kernel in found] == ["gt", "mul_where"]


def test_a_long_chain_is_several_kernels():
    def function(x):
        for _ in range(300):
            x = x + 1
        return x

    assert [len(kernel.nodes) for kernel in kernels(function, torch.ones(2))] == [128, 128, 44]


def test_moved_of_views_is_nothing():
    graph = capture(lambda x: x.t() @ x, torch.ones(2, 3))
    assert [moved(step) for step in fuse(graph)] == [0, 0, 4 * (6 + 6 + 9), 0]
    assert sum(len(writes(step)) for step in fuse(graph) if step.op == "call_function") == 1
    assert all(reads(step) for step in fuse(graph) if step.op == "call_function")


def test_a_space_is_of_all_its_nodes():
    for function in (*SHAPES, *DIFFERENTIABLE):
        for kernel in kernels(function):
            assert all(map(is_fusable, kernel.nodes)) and space_of(kernel.nodes) == (kernel.shape, kernel.reduced)
    assert [kernel.reduced for kernel in kernels(relu_sum)] == [2]
