"""What is observed of a rank: debuggers see the program, not what is noted of each operator; copies take their time."""

import sys

import pytest
import torch

import tinydist
from tinydist.annotate import begin_copy
from tinydist.hardware import Cluster, Link
from tinydist.tracing.observer import MarkPoint, Operator, hidden_from_debuggers


def functions_seen(program):
    seen, before = set(), sys.gettrace()

    def trace(frame, event, argument):
        seen.add((frame.f_globals.get("__name__", ""), frame.f_code.co_name))

    sys.settrace(trace)
    try:
        program()
    finally:
        sys.settrace(before)
    return seen


def step():
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def test_what_is_noted_of_an_operator_is_not_seen_and_all_else_is():
    (seen,) = tinydist.launch(lambda: functions_seen(step), 1).results
    assert {(__name__, "step"), ("torch.nn.modules.linear", "forward")} <= seen
    noting = {name for home, name in seen if home == "tinydist.tracing.ledger"}
    assert noting <= {"_gone", "_note"}  # when a tensor ends


def test_tracing_goes_on_after_an_error():
    @hidden_from_debuggers
    def fails():
        raise KeyError

    def program():
        with pytest.raises(KeyError):
            fails()
        step()

    assert (__name__, "step") in functions_seen(program)


# Copies to the host and back: one after another in each direction, while the device computes.


def copies():
    x = torch.ones(256, 256)
    ends = [begin_copy(name, x, x.nbytes, 1e-3) for name in ("to host", "to host", "to device")]
    x.mm(x)
    for end in ends:
        end()
    x.add(x)


def test_they_overlap_compute_and_each_other_but_for_those_of_one_direction():
    run = tinydist.launch(copies, 2, cluster=Cluster("laptop CPU", 2, Link("any", 0.0, 1e9)))
    for rank in range(2):
        there, back = (run.trace.of(rank, f"{rank} {name}") for name in ("to host", "to device"))
        issued = there[0].issued
        assert [copy.start - issued for copy in [*there, *back]] == pytest.approx([0, 1e-3, 0])
        assert [copy.end - copy.start for copy in [*there, *back]] == pytest.approx([1e-3] * 3)
        product, wait, *_ = [e for e in run.trace.of(rank, "compute") if e.name in ("mm", "wait")]
        assert product.start == issued and product.end < there[0].end and wait.start == product.end
        assert run.trace.of(rank, "compute")[-1].start == there[1].end
    assert sum(map(sum, run.traffic)) == 0  # to no other rank


def test_where_nothing_is_observed_they_are_nothing():
    tinydist.launch(copies, 2, observe=False)
    begin_copy("to host", torch.ones(1), 4, 1.0)()


@pytest.mark.parametrize("how", [dict(fused=True), dict(foreach=True), dict(foreach=False)], ids=str)
def test_what_an_optimizer_writes_in_place_counts_too(how):
    """Of Adam a fused kernel reads four tensors and writes three; lists count as single tensors do."""

    def second_step():
        weight = torch.nn.Parameter(torch.zeros(1000))
        weight.grad = torch.zeros(1000)
        optimizer = torch.optim.Adam([weight], **how)
        optimizer.step()
        tinydist.mark("begin")
        optimizer.step()

    program = tinydist.launch(second_step, 1).record.programs[0]
    begin = next(place for place, each in enumerate(program) if isinstance(each, MarkPoint))
    moved = sum(each.nbytes // 1000 * 1000 for each in program[begin:] if isinstance(each, Operator))
    numbers = 7 if how.get("fused") else 3 + 2 + 4 + 2 + 2 + 2 + 4  # lerp, mul, addcmul, sqrt, div, add, addcdiv
    assert moved == 4 * 1000 * numbers


TABLE, ROWS = torch.zeros(1000, 8), torch.arange(10)


@pytest.mark.parametrize(
    "operator, numbers",
    [
        (lambda: TABLE.zero_(), 8000),
        (lambda: TABLE.fill_(2.0), 8000),
        (lambda: TABLE.normal_(), 8000),
        (lambda: torch.zeros_like(TABLE), 8000),
        (lambda: TABLE.copy_(torch.empty(1000, 8)), 2 * 8000),
        (lambda: TABLE.mul_(2.0), 2 * 8000),
        (lambda: torch.nn.functional.embedding(ROWS, TABLE), 2 * 80 + 20),  # an index is two numbers wide
    ],
    ids=["zero_", "fill_", "normal_", "zeros_like", "copy_", "mul_", "embedding"],
)
def test_what_is_not_read_does_not_count(operator, numbers):
    program = tinydist.launch(operator, 1).record.programs[0]
    assert sum(each.nbytes for each in program if isinstance(each, Operator)) == 4 * numbers


def test_a_loss_reads_one_score_of_each_row():
    """The gradient of all scores is written, and then one number of each row."""

    def loss():
        scores = torch.zeros(10, 1000, requires_grad=True)
        torch.nn.functional.nll_loss(scores, ROWS).backward()

    program = tinydist.launch(loss, 1).record.programs[0]
    forward, backward = (each for each in program if getattr(each, "name", "").startswith("nll_loss"))
    assert (forward.nbytes, backward.nbytes) == (10 * 8 + 2 * 4, 10 * 8 + 10 * 1000 * 4)
