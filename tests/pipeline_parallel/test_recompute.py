"""Forward once more: the same numbers, less held, a third more compute."""

from dataclasses import replace
from math import inf

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from pipeline_parallel.tiny_pipeline import assert_equals_one_process
from torch import nn

import tinydist
from tinydist.hardware import Cluster, Device, Link
from tinydist.pipeline_parallel import (
    Costs,
    ScheduleError,
    Worker,
    analyze,
    make_schedule,
    verify,
    with_recomputation,
)
from tinydist.pipeline_parallel.backward import ForwardAgain

each_way = pytest.mark.parametrize("recompute", ["before", "inside"])


@each_way
@pytest.mark.parametrize("name", ["GPipe", "1F1B", "ZB-V", "DualPipeV"])
def test_equals_one_process(name, recompute):
    assert_equals_one_process(make_schedule(name, 2, 4), recompute=recompute)


def test_before_it_is_an_action_of_the_schedule():
    schedule = verify(with_recomputation(make_schedule("ZB-H1", 2, 2)))
    assert [str(each) for each in schedule.programs[1]] == ["1F0", "1R0", "1I0", "1F1", "1R1", "1I1", "1W0", "1W1"]
    assert with_recomputation(schedule) == schedule
    overlapped = with_recomputation(make_schedule("DualPipeV", 2, 4))
    assert sum(part.kind == "R" for _, _, part in overlapped.all_parts()) == 4 * 4
    first, (F0, R0, I0, *others) = schedule.programs
    late = replace(schedule, programs=(first, (F0, I0, R0, *others)))
    with pytest.raises(ScheduleError, match="1I0 needs 1R0, which runs only at step 2"):
        verify(late)
    assert_equals_one_process(schedule)  # and the worker does as it says
    assert analyze(schedule, Costs(kept_inputs=0.5)).peak == [1.5, 2]


@pytest.mark.parametrize("P, M", [(1, 3), (2, 4), (4, 8), (4, 3), (8, 16)])
@pytest.mark.parametrize("F, I, W", [(1, 1, 1), (4, 3.5, 3)])
@pytest.mark.parametrize("name", ["GPipe", "1F1B"])
def test_the_bubble_of_each(name, P, M, F, I, W):  # noqa: E741
    """Before, ranks recompute while they wait; inside, the way up is as much longer."""
    schedule, kept = make_schedule(name, P, M), 0.25
    for recompute, way in (("before", F + I + W), ("inside", 2 * F + I + W)):
        found = analyze(schedule, Costs(F, I, W, recompute=recompute, kept_inputs=kept))
        assert found.busy == pytest.approx([M * (2 * F + I + W)] * P)
        assert found.idle == pytest.approx([(P - 1) * way] * P)
        ahead = [M if name == "GPipe" else min(P - rank, M) for rank in range(P)]
        assert found.peak == [1 + kept * (most - 1) for most in ahead]


def except_last():
    """GPipe, backwards from the last microbatch, whose forward has just been: that one is not run again."""
    gpipe = make_schedule("GPipe", 2, 3)
    programs = []
    for program in gpipe.programs:
        F, B = program[:3], program[3:]
        programs.append((*F, B[2], B[1]._replace(kind="R"), B[1], B[0]._replace(kind="R"), B[0]))
    return verify(replace(gpipe, programs=tuple(programs)))


def test_what_is_not_run_again_is_held():
    schedule = except_last()
    assert [live.tolist() for live in analyze(schedule).live] == [[0, 0, 1, 1, 1, 1, 1, 1]] * 2
    kept = analyze(schedule, Costs(kept_inputs=0.25))
    assert kept.peak == [1.5, 1.5]
    assert kept.makespan == 3 * 3 + (2 - 1) * 3 + 2  # each rank runs two forwards again
    assert_equals_one_process(schedule)


def test_dropout_drops_the_same():
    x, dropout = torch.ones(100, requires_grad=True), nn.Dropout()
    again = ForwardAgain(dropout, x)
    after = torch.rand(3)
    torch.autograd.backward(again.edge(), torch.ones(100))
    assert torch.equal(x.grad, again.output) and 0 < x.grad.count_nonzero() < 100
    again = ForwardAgain(lambda x: x, x)
    state = torch.get_rng_state()
    again.edge()
    assert torch.equal(torch.get_rng_state(), state) and len(after) == 3


LAYERS, WIDTH, ROWS = 4, 64, 64
PRODUCT = 2 * ROWS * WIDTH * WIDTH / 1e9
DEVICE = Device("products alone", {"float32": 1e9}, inf, inf)


def execute(schedule, recompute=False):
    def program():
        stage = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh()) for _ in range(LAYERS)])
        between = torch.empty(ROWS, WIDTH, device="meta")
        worker = Worker(schedule, {dist.get_rank(): stage}, between, F.mse_loss, recompute=recompute)
        worker.step(*[torch.zeros(1, WIDTH).expand(ROWS * schedule.microbatches, WIDTH)] * 2)

    wires = Link("wires", 0.0, inf, "mesh")
    return tinydist.launch(program, schedule.ranks, cluster=Cluster(DEVICE, schedule.ranks, wires))


def held(run, rank):
    """The most, in what passes between two layers."""
    most = max(purposes["activations"] for _, purposes in run.memory[rank].over_time())
    return most / (ROWS * WIDTH * 4)


@each_way
@pytest.mark.parametrize("name", ["GPipe", "1F1B", "ZB-H2"])
def test_executed_as_analyzed(name, recompute):
    """Time to the last digit; memory but for the few tensors of a pass and of messages."""
    schedule, P = make_schedule(name, 3, 6), 3
    inputs = [PRODUCT * (LAYERS - 1), *[PRODUCT * LAYERS] * (P - 1)]  # the first layer of all has no input gradient
    weights = [PRODUCT * LAYERS] * P
    if name == "ZB-H2":  # there all the first stage's backward is W
        inputs[0], weights[0] = 0.0, PRODUCT * (2 * LAYERS - 1)
    costs = Costs(PRODUCT * LAYERS, inputs, weights, recompute=recompute, kept_inputs=1 / LAYERS)
    run, analysis = execute(schedule, recompute), analyze(schedule, costs)
    assert run.seconds == pytest.approx(analysis.makespan, rel=1e-9)
    for rank in range(1, P):
        assert LAYERS * analysis.peak[rank] <= held(run, rank) <= LAYERS * analysis.peak[rank] + 5


def test_inputs_alone_are_held():
    """Of 8 microbatches: 5 tensors each (input, 4 outputs of tanh), or 1 each and one graph."""
    schedule = make_schedule("GPipe", 2, 8)
    all_of_it, inputs = (held(execute(schedule, recompute), rank=1) for recompute in (False, True))
    assert 8 * 5 <= all_of_it <= 8 * 5 + 3 and 8 <= inputs <= 8 + 4 + 3


def test_the_worker_holds_what_is_not_run_again():
    """Of 3 microbatches: one whole, and the inputs of two."""
    assert 5 + 2 <= held(execute(except_last()), rank=1) <= 5 + 2 + 3
