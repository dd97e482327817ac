"""The sharding pass: values of one rank, bytes by formula; and which techniques come out of which layouts."""

from copy import deepcopy
from math import prod

import pytest
import torch
from compilers.functions import DIFFERENTIABLE, PROGRAMS, gated, inputs_of, layer_norm, listed, mlp, relu_sum, softmax
from hypothesis import given
from hypothesis import strategies as st
from sampled import sampled
from torch.func import functional_call

import tinydist
from tinydist.compilers import Layouts, Program, Sharded, capture, gather_results, partition, take_parts, with_gradients
from tinydist.compilers.dim_names import reshaped
from tinydist.compilers.graph import results
from tinydist.model import GPT, GPTConfig
from tinydist.tensor_parallel import shard

RANKS = [1, 2, 4, 8]


def inputs_like(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def check(function, inputs, ranks, layouts, outputs=None):
    """On simulated ranks, with whole results put together; gives the layouts and the bytes that rank 0 sent."""
    graph = capture(function, *inputs)
    plan = Layouts(graph, ranks, layouts, outputs)

    def program():
        given, compiled = take_parts(plan, inputs), Program(partition(plan))
        with tinydist.region("step"):
            made = compiled(*given)
        return gather_results(plan, listed(made))

    run = tinydist.launch(program, ranks)
    for of_rank in run.results:
        for found, wanted in zip(of_rank, listed(function(*inputs)), strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    assert sum(run.between("step").traffic[0]) == plan.sent
    return plan


MLP = [(2, 8, 16), (32, 16), (32,), (32, 16)]


@pytest.mark.parametrize("ranks", sampled([1, 4], RANKS))
def test_columns_then_rows_is_tensor_parallelism(ranks):
    """One all-reduce of the output, and in backward one of the input's gradient."""
    inputs = inputs_like(*MLP)
    plan = check(with_gradients(mlp), inputs, ranks, [None, 0, 0, 0], "as they come")
    assert plan.collectives == [("all_reduce", [2, 8, 16])] * 2
    assert plan.sent == 2 * 2 * (ranks - 1) * inputs[0].nbytes / ranks
    assert [plan.of(node) for node in results(plan.graph)[2:]] == [Sharded(0)] * 3


@pytest.mark.parametrize("ranks", sampled([2], [2, 4]))
def test_heads_cut_is_tensor_parallelism(ranks):
    """Queries, keys and values are blocks of one weight, each cut by heads."""

    def four_heads(x, w, v):
        (B, T, D), H = x.shape, 4
        q, k, values = (x @ w).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        return (torch.softmax(q @ k.mT / 2, -1) @ values).transpose(1, 2).reshape(B, T, D) @ v

    inputs = inputs_like((2, 6, 16), (16, 48), (16, 16))
    plan = check(with_gradients(four_heads), inputs, ranks, [None, Sharded(1, 3), 0], "as they come")
    assert [name for name, _ in plan.collectives] == ["all_reduce"] * 2
    assert plan.sent == 2 * 2 * (ranks - 1) * inputs[0].nbytes / ranks


@pytest.mark.parametrize("ranks", sampled([4], RANKS))
def test_a_cut_batch_is_data_parallelism(ranks):
    """An all-reduce for each weight's gradient; with results cut, a reduce-scatter; with weights cut, their gathers."""
    inputs = inputs_like((8, 4, 16), *MLP[1:])
    weights = sum(each.nbytes for each in inputs[1:]) * (ranks - 1) / ranks
    step = with_gradients(mlp)
    replicated = check(step, inputs, ranks, [0, None, None, None], [0, 0, None, None, None])
    scattered = check(step, inputs, ranks, [0, None, None, None], [0, 0, 0, 0, 0])
    gathered = check(step, inputs, ranks, [0, 0, 0, 0], [0, 0, 0, 0, 0])
    assert [each.sent for each in (replicated, scattered, gathered)] == [2 * weights, weights, 2 * weights]
    assert [name for name, _ in gathered.collectives] == ["all_gather"] * 3 + ["reduce_scatter"] * 3


@pytest.mark.parametrize("function", sampled([gated], DIFFERENTIABLE))
def test_any_input_may_be_cut_along_any_dim(function):
    inputs, step = inputs_of(function), with_gradients(function)
    for place, each in enumerate(inputs):
        for dim, size in enumerate(each.shape):
            if size % 2 == 0:
                layouts = [dim if other == place else None for other in range(len(inputs))]
                check(step, inputs, 2, layouts)
                check(step, inputs, 2, layouts, "as they come")


@given(
    PROGRAMS,
    st.sampled_from([None, 0, 1, Sharded(1, 2)]),
    st.sampled_from([None, 0]),
    st.sampled_from([None, 0]),
    st.sampled_from([None, "as they come"]),
)
def test_any_program_on_any_layouts(function, of_matrix, of_column, of_row, outputs):
    check(function, inputs_of(function), 2, [of_matrix, of_column, of_row, None], outputs)


def test_a_cut_reduction_is_reduced_over_ranks_and_a_maximum_is_gathered():
    inputs = inputs_like((4, 6), (6,))
    assert check(relu_sum, inputs, 2, [0, None]).collectives == [("all_reduce", [])]
    assert check(softmax, inputs, 2, [0, None], [0]).collectives == []
    assert check(softmax, inputs, 2, [1, 0]).collectives[0][0] == "all_gather"
    normed = check(layer_norm, inputs_like((4, 6), (6,), (6,)), 2, [1, 0, 0], [1])
    assert normed.collectives == [("all_reduce", [4, 1])] * 2


def twice(x):
    y = 2 * x
    return y, y, x


def summed_in_another_dtype(x):
    return x.sum(0, dtype=torch.float32)


def transposed(x):
    return x.t() + x.t()


def of_nine_dims(x):
    return 2 * x.view(4, 6, *[1] * 7).transpose(0, 1)


@pytest.mark.parametrize("function", [twice, summed_in_another_dtype, transposed, of_nine_dims])
@pytest.mark.parametrize("cut", [None, 0, 1])
def test_results_of_any_kind(function, cut):
    """One that is returned twice; dims that a sum drops; more dims than have names."""
    inputs = inputs_like((4, 6))
    check(function, inputs, 2, [cut], "as they come")
    check(function, [inputs[0].t().contiguous().t()], 2, [cut])


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("backend", ["torch", "llvm"])
def test_a_part_of_a_transposed_tensor_is_laid_out_as_the_graph_says(dim, backend):
    if backend == "llvm":
        pytest.importorskip("llvmlite", reason="kernels are compiled by llvmlite")
    x, y = inputs_like((4, 6), (6, 4))
    plan = Layouts(capture(lambda x, y: x.t() + y, x, y), 2, [None, dim], [dim])

    def program():
        return gather_results(plan, [Program(partition(plan), backend=backend)(*take_parts(plan, [x, y]))])

    for (found,) in tinydist.launch(program, 2).results:
        assert found.equal(x.t() + y)


SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=3)


@given(SIZES, SIZES, st.integers(0, 2), st.integers(1, 2), st.integers(1, 2))
def test_a_view_of_a_part_is_the_part_of_the_view(before, after, dim, blocks, ranks):
    """Of the numbers 0, 1, 2 ...: for each layout that follows a view, each rank has the numbers that it has."""
    cut = Sharded(dim % len(before), blocks)
    before[cut.dim] *= blocks * ranks
    after = [*after, prod(before)] if prod(before) % prod(after) else [*after, prod(before) // prod(after)]
    if prod(after) != prod(before):
        return
    x = torch.arange(prod(before)).view(before)
    moved = reshaped(before, after, cut, ranks)
    for rank in range(ranks):
        if moved:
            assert part(x, cut, ranks, rank).flatten().equal(part(x.view(after), moved, ranks, rank).flatten())


def part(x, cut, ranks, rank):
    return x.unflatten(cut.dim, (cut.blocks, ranks, -1)).select(cut.dim + 1, rank)


def test_a_view_without_numbers_is_not_followed():
    assert reshaped((0, 4), (0, 2, 2), Sharded(1), 2) is None


def block(tensor_parallel, ranks):
    """(bytes of rank 0 in forward and backward of a block of the GPT, the gradient of its input)."""
    torch.manual_seed(0)
    # With a rate of dropout its attention is matmuls and a softmax, and without training nothing is dropped.
    gpt = GPT(GPTConfig(context=8, layers=1, heads=8, dim=32, dropout=0.1)).double().eval()
    x = torch.randn(2, 8, 32, dtype=torch.float64)
    whole = gpt.blocks[0]
    names, parameters = zip(*whole.named_parameters())

    def function(x, *parameters):
        return functional_call(whole, dict(zip(names, parameters)), x)

    cut = {"attention.qkv.weight": Sharded(0, 3), "attention.qkv.bias": Sharded(0, 3), "attention.out.weight": 1}
    cut |= {"mlp.up.weight": 0, "mlp.up.bias": 0, "mlp.down.weight": 1}

    def ours():
        graph = capture(with_gradients(function), x, *parameters)
        layouts = Layouts(graph, ranks, [None, *map(cut.get, names)], "as they come")
        given, compiled = take_parts(layouts, [x, *parameters]), Program(partition(layouts))
        with tinydist.region("step"):
            return compiled(*given)[1]

    def theirs():
        model, given = shard(deepcopy(gpt)), x.clone().requires_grad_()
        with tinydist.region("step"):
            model.blocks[0](given).sum().backward()
        return given.grad

    run = tinydist.launch(theirs if tensor_parallel else ours, ranks)
    return sum(run.between("step").traffic[0]), run.results[0]


@pytest.mark.parametrize("ranks", sampled([2], RANKS))
def test_a_block_of_the_gpt_sends_what_tensor_parallel_sends(ranks):
    """Attention and MLP: 8 bsh (t-1)/t numbers."""
    (sent, gradient), (theirs, exact) = block(False, ranks), block(True, ranks)
    assert sent == theirs == 8 * 8 * (2 * 8 * 32) * (ranks - 1) / ranks
    torch.testing.assert_close(gradient, exact, rtol=0, atol=1e-10)


def test_errors():
    graph = capture(mlp, *inputs_of(mlp))
    for arguments, words in [
        ((2, [None, 0]), r"Layouts: there are 4 inputs, got 2 layouts"),
        ((3, [None, 0, 0, 0]), r"Layouts: w_1 of shape \[16, 8\] must have dim 0, divisible by 3 ranks x 1 blocks"),
        ((2, [3, None, None, None]), r"Layouts: x_1 of shape \[2, 5, 8\] must have dim 3, divisible"),
        ((2, ["x", None, None, None]), "Layouts: inputs must be a Sharded, got 'x'"),
        ((0, [None] * 4), "Layouts: ranks must be an integer from 1"),
        ((2, [Sharded(0, 0), None, None, None]), "Layouts: blocks of x_1 must be an integer >= 1, got 0"),
        ((2, [Sharded("x"), None, None, None]), "Layouts: dim of x_1 must be an integer, got 'x'"),
    ]:
        with pytest.raises((ValueError, TypeError), match=words):
            Layouts(graph, *arguments)
    plan = Layouts(graph, 1, [None] * 4)
    for function, words in [
        (lambda: take_parts(plan, [torch.ones(1)] * 3), "take_parts: the graph has 4 inputs, got 3"),
        (lambda: gather_results(plan, []), "gather_results: the graph has 1 results, got 0"),
    ]:
        with pytest.raises(ValueError, match=words):
            tinydist.launch(function, 1)
    with pytest.raises(ValueError, match="partition: layouts are for 2 ranks, but the group has 4"):
        tinydist.launch(lambda: partition(Layouts(graph, 2, [None] * 4)), 4)
