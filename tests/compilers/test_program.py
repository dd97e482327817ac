"""Programs: what eager gives, in fewer bytes, and these are what the ledger counts."""

import math

import pytest
import torch
from compilers.functions import DIFFERENTIABLE, PROGRAMS, attention, chain, inputs_of, layer_norm, listed, mlp, softmax
from compilers.test_graph import CASES
from hypothesis import given
from hypothesis import strategies as st
from rounding import between_orders

import tinydist
from tinydist.compilers import Program, capture, with_gradients
from tinydist.compilers.graph import is_view, value
from tinydist.compilers.lifetimes import home
from tinydist.compilers.operators import POINTWISE
from tinydist.tracing.record import Operator


def is_there(backend):
    try:
        Program(capture(torch.exp, torch.ones(2)), backend=backend)  # generates code, and runs none
    except ValueError:
        return False
    return True


def variant(backend, dtype, plan="reuse", target=""):
    missing = pytest.mark.skipif(not is_there(backend), reason=f"{backend} is not installed: make {target}")
    return pytest.param(backend, dtype, plan, marks=missing)


VARIANTS = [
    variant("torch", torch.float64),
    variant("torch", torch.float64, "separate"),
    variant("torch", torch.float32),
    variant("llvm", torch.float64, target="compilers"),
    variant("llvm", torch.float32, target="compilers"),
    variant("triton", torch.float64, target="kernels"),
]


def device_of(backend):
    """Triton's interpreter is for machines without a GPU."""
    return "cuda" if backend == "triton" and torch.cuda.is_available() else "cpu"


def bound(graph, inputs):
    """In float32: each operator errs by its own rounding, of numbers as large as the largest in between."""
    largest, terms = [1.0], 0

    class Watch(torch.fx.Interpreter):
        def run_node(self, node):
            result = super().run_node(node)
            if isinstance(result, torch.Tensor) and result.is_floating_point():
                largest.append(result.abs().max().item())
            return result

    Watch(torch.fx.GraphModule(torch.nn.Module(), graph)).run(*inputs)
    for node in graph.nodes:
        if node.op == "call_function" and not is_view(node):
            sizes = [math.prod(value(each).shape) for each in (*node.all_input_nodes, node)]
            terms += 2 if node.target in POINTWISE else max(sizes)
    return between_orders(torch.float32, terms, max(largest) ** 2)


@pytest.mark.parametrize("backend, dtype, plan", VARIANTS)
@pytest.mark.parametrize("function, inputs", CASES)
def test_it_gives_what_eager_gives(function, inputs, backend, dtype, plan):
    wanted, rounded = listed(function(*inputs)), [each.to(dtype).to(device_of(backend)) for each in inputs]
    program = Program(capture(function, *rounded), backend=backend, plan=plan)
    allowed = 1e-12 if dtype == torch.float64 else bound(capture(function, *inputs), inputs)
    for found, exact in zip(listed(program(*rounded)), wanted, strict=True):
        torch.testing.assert_close(found.cpu().to(exact.dtype), exact, rtol=0, atol=allowed)
    assert all(torch.equal(one.cpu(), other.to(dtype)) for one, other in zip(rounded, inputs))


def strided(x, b):
    """Of tensors that are transposed, expanded, and have no dim, or no numbers."""
    y = torch.tanh(x.t() + b.expand(4, 3)) * 2
    return y, y.sum(0), y.sum(), (y.t() - b.sum()).amax(1), x.expand(2, 3, 4).sum((1, 2)), x[:, :0].exp().sum(1)


@pytest.mark.parametrize("backend, dtype, plan", VARIANTS)
def test_any_strides(backend, dtype, plan):
    x = torch.randn(3, 4, dtype=torch.float64).to(dtype).to(device_of(backend))
    for inputs in ([x, x[:, 0]], [x.t().contiguous().t(), x[0, :3].clone()], [x[:1].expand(3, 4), x[0, 0]]):
        program = Program(capture(strided, *inputs), backend=backend, plan=plan)
        for found, wanted in zip(program(*inputs), strided(*inputs), strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-4)
            assert found.stride() == wanted.stride() or found.numel() <= 1


def counted(function, inputs):
    """Of one call: bytes that operators read and wrote, those held at the peak besides inputs, and launches."""

    def program():
        given = [each.clone() for each in inputs]
        tinydist.mark("begin")
        function(*given)
        tinydist.mark("end")

    run = tinydist.launch(program, 1)
    operators = [each for each in run.record.programs[0] if isinstance(each, Operator)][len(inputs) :]
    held = run.memory[0].peak - sum(each.nbytes for each in inputs)
    return sum(each.nbytes for each in operators), held, len(operators)


@pytest.mark.parametrize("plan", ["reuse", "separate"])
@pytest.mark.parametrize("function, inputs", CASES)
def test_formulas_are_what_the_ledger_counts(function, inputs, plan):
    program = Program(capture(function, *inputs), plan=plan)
    assert counted(program, inputs) == (program.moved, program.held, program.launches)


LARGER = {
    chain: [(64, 96), (96,)],
    softmax: [(64, 96), (64, 1)],
    layer_norm: [(64, 96), (96,), (96,)],
    mlp: [(64, 32), (96, 32), (96,), (96, 32)],
    attention: [(2, 96, 64), (64, 192), (64, 64)],
}


WORSE = {(attention, True): ["held"]}  # forward's softmax waits for backward's, to be one kernel with it


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("function", LARGER)
def test_it_moves_and_holds_less_than_eager(function, gradients):
    inputs = [torch.ones(shape) for shape in LARGER[function]]
    step = with_gradients(function) if gradients else function
    fused, eager = counted(Program(capture(step, *inputs)), inputs), counted(step, inputs)
    worse = [what for what, mine, theirs in zip(("moved", "held", "launches"), fused, eager) if mine > theirs]
    assert worse == WORSE.get((function, gradients), [])


def test_a_chain_of_k_operators_moves_2kn_eager_and_2n_fused():
    x = torch.ones(1000)

    def five(x):
        return (((x + 1) * 2).exp() - 3).tanh()

    program = Program(capture(five, x))
    assert counted(five, [x])[0] == 10 * x.nbytes
    assert (program.moved, program.held, program.launches) == (2 * x.nbytes, x.nbytes, 1)


def test_plans_share_bytes():
    inputs = inputs_of(attention)
    graph = capture(with_gradients(attention), *inputs)
    reuse, separate = (Program(graph, plan=plan) for plan in ("reuse", "separate"))
    assert reuse.arena < separate.arena / 2 and reuse.moved == separate.moved


def test_a_result_may_be_written_over_what_is_read_last():
    def function(x):
        return ((x @ x).exp() @ x).exp() @ x

    program = Program(capture(function, torch.eye(8)))
    over = [kernel.in_place for kernel in program.kernels]
    assert [[home(read).target for read in each.values()] for each in over] == [[torch.ops.aten.mm.default]] * 2
    assert program.arena == 2 * 8 * 8 * 4


def test_a_matmul_reads_one_tensor_twice():
    x = torch.ones(4, 4)
    program = Program(capture(lambda x: x @ x, x))
    assert counted(program, [x]) == (3 * x.nbytes, x.nbytes, 1) == (program.moved, program.held, program.launches)


def masks(x, y):
    mask, single = x == y, torch.tanh(x.float())
    mixed = torch.where(mask, single, 0.0), torch.where(mask, mask, x)
    return mask * x, torch.where(mask, x, 0.0), (x > y).clone(), x > y, *mixed


def zeros(x, y):
    return 1 / -(x - x), 1 / -(y + 1).log()


@pytest.mark.parametrize("function", [masks, zeros])
@pytest.mark.parametrize("backend, dtype, plan", VARIANTS)
def test_masks_and_the_sign_of_zero(function, backend, dtype, plan):
    """A mask is no number, and a kernel may have nothing else to write."""
    x = torch.tensor([1.0, 2.0, 3.0], dtype=dtype), torch.tensor([1.0, 0.0, 3.0], dtype=dtype)
    given = [each.to(device_of(backend)) for each in x]
    program = Program(capture(function, *given), backend=backend, plan=plan)
    for found, wanted in zip(program(*given), function(*x), strict=True):
        torch.testing.assert_close(found.cpu(), wanted)


@given(PROGRAMS, st.booleans())
@pytest.mark.parametrize("backend, dtype, plan", [VARIANTS[0], VARIANTS[3]])
def test_any_program_gives_what_eager_gives(backend, dtype, plan, function, transposed):
    """Views, broadcasting, fusion and writing in place, in any order; and no input is written over."""
    inputs = inputs_of(function)
    inputs[0] = inputs[0].t() if transposed else inputs[0]
    before, wanted = [each.clone() for each in inputs], function(*inputs)
    found = Program(capture(function, *inputs), backend=backend, plan=plan)(*inputs)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    assert all(map(torch.equal, inputs, before))


def test_results_that_are_one_tensor_or_an_input():
    def function(x):
        y = x @ x
        return y, y, y.t(), x, x.t(), None

    x = torch.arange(9.0).view(3, 3)
    *found, nothing = Program(capture(function, x))(x)
    assert nothing is None and found[0] is found[1] and found[3] is x
    assert all(map(torch.equal, found, function(x)))


def test_what_is_read_in_two_ways_is_not_written_over():
    def function(x):
        y = x @ x
        return (y + y.t()).exp() @ x

    x = torch.arange(9.0, dtype=torch.float64).view(3, 3) / 9
    program = Program(capture(function, x))
    assert program.kernels[0].in_place == {}
    torch.testing.assert_close(program(x), function(x), rtol=1e-14, atol=0)


def needed_later(x):
    y = x @ x
    return y.exp() @ y


def of_other_strides(x):
    y = x @ x
    return (x + y.t()) @ x


def in_two_ways(x):
    y = x @ x
    return (y + y.t()).exp() @ x


@pytest.mark.parametrize("function", [needed_later, of_other_strides, in_two_ways])
@pytest.mark.parametrize("backend, dtype, plan", [VARIANTS[0], VARIANTS[3]])
def test_no_number_is_written_over_before_it_was_read_for_the_last_time(function, backend, dtype, plan):
    """Torch's operators give new tensors; generated code writes where it reads."""
    x = torch.arange(40 * 40, dtype=dtype).view(40, 40).sin() / 8  # of a few numbers, LLVM reads all before it writes
    found = Program(capture(function, x), backend=backend, plan=plan)(x)
    torch.testing.assert_close(found, function(x), rtol=1e-13, atol=1e-13)


def test_inputs_are_those_that_were_captured():
    program = Program(capture(chain, *inputs_of(chain)))
    x, b = inputs_of(chain)
    with pytest.raises(ValueError, match="Program: it was captured with 2 inputs, got 1"):
        program(x)
    with pytest.raises(ValueError, match=r"input 0 must be as it was captured, \[3, 5\] of torch.float64 with strides"):
        program(x.t().contiguous().t(), b)
    with pytest.raises(ValueError, match=r"on cpu, got \[3, 5\] of torch.float64 with strides \[5, 1\] on meta"):
        program(x.to("meta"), b)
    with pytest.raises(ValueError, match="Program: backend must be one of torch, llvm, triton, got 'gcc'"):
        Program(capture(torch.exp, x), backend="gcc")


def test_it_runs_on_tensors_without_data():
    def program(function):
        return function(torch.ones(2**15, 2**15), torch.ones(2**15))

    made = tinydist.launch(program, 1, lambda *inputs: Program(capture(chain, *inputs)), fake=True, observe=False)
    run = tinydist.launch(program, 1, made.results[0], fake=True)
    assert run.memory[0].peak == 2**33 + 2**17


def test_gradients_are_autograds():
    assert DIFFERENTIABLE
    x = torch.randn(5, dtype=torch.float64)
    found = Program(capture(with_gradients(lambda x: x.exp().sum()), x))(x)
    torch.testing.assert_close(found[1], x.exp(), rtol=1e-14, atol=0)
