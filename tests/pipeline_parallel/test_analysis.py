"""The published formulas, torch's schedules replayed, and schedules executed: the same seconds and activations."""

import math
from itertools import product

import numpy as np
import pytest
import torch
import torch.distributed as dist
from pipeline_parallel.torchs_own import NAMES, torchs
from torch import nn

import tinydist
from tinydist.hardware import Cluster, Device, Link
from tinydist.pipeline_parallel import (
    SCHEDULES,
    Costs,
    Worker,
    analyze,
    find_schedule,
    make_schedule,
    v_shape,
    verify,
    with_messages,
)

RANKS, MICROBATCHES = (1, 2, 3, 4, 8), (1, 3, 8, 16)
TIMES = [(1, 1, 1), (4, 3.5, 3)]
GRID = [(P, M, *times) for P, M, times in product(RANKS, MICROBATCHES, TIMES)]
grid = pytest.mark.parametrize("P, M, F, I, W", GRID)


def analyzed(name, P, M, F=1, I=1, W=1, v=1, **costs):  # noqa: E741
    """F, I, W are a rank's: each of its v stages has 1/v of them."""
    schedule = make_schedule(name, P, M, v)
    return analyze(schedule, Costs(F / v, I / v, W / v, **costs))


@grid
def test_naive(P, M, F, I, W):  # noqa: E741
    found = analyzed("naive", P, M, F, I, W)
    assert found.makespan == pytest.approx(P * M * (F + I + W))
    assert found.bubble == pytest.approx(1 - 1 / P) and found.peak == [1] * P


@grid
@pytest.mark.parametrize("name", ["GPipe", "1F1B"])
def test_the_same_bubble(name, P, M, F, I, W):  # noqa: E741
    """Huang et al. 2019, section 2.3; Narayanan et al. 2021, section 2.2: (P-1)(F+B), though 1F1B holds less."""
    found = analyzed(name, P, M, F, I, W)
    assert found.idle == pytest.approx([(P - 1) * (F + I + W)] * P)
    assert found.bubble == pytest.approx((P - 1) / (M + P - 1))
    assert found.bubble_over_ideal == pytest.approx((P - 1) / M)
    assert found.peak == ([M] * P if name == "GPipe" else [min(P - rank, M) for rank in range(P)])


@pytest.mark.parametrize("P, v, rounds", list(product((1, 2, 3, 8), (1, 2, 3), (1, 4))))
@pytest.mark.parametrize("name", ["interleaved 1F1B", "looped BFS"])
def test_stages_in_a_loop(name, P, v, rounds):
    """Narayanan et al. 2021, section 2.2: the bubble over v, for v times the messages."""
    M = rounds * P
    found = analyzed(name, P, M, 2, 3, 1, v=v)
    assert found.idle == pytest.approx([(P - 1) * 6 / v] * P)
    assert found.bubble_over_ideal == pytest.approx((P - 1) / (v * M))
    held = M * v if name == "looped BFS" else min(P * v + P - 1, M * v)
    assert found.peak[0] == held
    assert sum(map(sum, found.messages)) == (2 * M * (v * P - 1) if P > 1 else 0)


BIG_ENOUGH = [(P, M) for P, M in product((1, 2, 4, 8), (4, 15, 32)) if M >= 2 * P - 1]


@pytest.mark.parametrize("P, M", BIG_ENOUGH)
@pytest.mark.parametrize("F, I, W", [(1, 1, 1), (2, 3, 1), (4, 3.5, 3), (18.5, 18.1, 9.3)])
def test_zero_bubble(P, M, F, I, W):  # noqa: E741
    """Qi et al. 2024, table 2: (P-1)(F+I-W), and of each rank's own span (P-1)(F+I-2W)."""
    h1, h2 = analyzed("ZB-H1", P, M, F, I, W), analyzed("ZB-H2", P, M, F, I, W)
    assert max(h1.idle) == pytest.approx((P - 1) * (F + I - W)) and h1.peak == [P] * P
    assert max(h2.idle_in_span) == pytest.approx((P - 1) * (F + I - 2 * W)) and h2.peak == [2 * P - 1] * P


@pytest.mark.parametrize("P, M", BIG_ENOUGH)
def test_no_bubble_but_the_start(P, M):
    """If F = I = W no rank waits between its first pass and its last; ZB-V holds half of what ZB-H2 does."""
    h2, v = analyzed("ZB-H2", P, M), analyze(make_schedule("ZB-V", P, M))
    assert h2.idle_in_span == v.idle_in_span == [0] * P
    assert h2.makespan == 3 * M + P - 1 and v.makespan == 6 * M + P - 1
    assert v.peak == [2 * P] * P  # of stages half as large
    assert v.messages[0][0] == 0 and sum(map(sum, v.messages)) == 4 * M * (P - 1)


@pytest.mark.parametrize("rank", range(4))
def test_what_the_weights_half_keeps(rank):
    """Qi et al. 2024, section 2.3: worker i of ZB-H1 holds (p-i+1) M_B + (i-1) M_W."""
    found = analyze(make_schedule("ZB-H1", 4, 12), Costs(kept_for_weights=0.5))
    assert found.peak[rank] == (4 - rank) + 0.5 * rank


@pytest.mark.parametrize("P, M", [(2, 4), (3, 6), (4, 8), (4, 12), (8, 16)])
@pytest.mark.parametrize("F, I, W", [(1, 1, 1), (2, 2, 1)])
def test_dualpipe_v(P, M, F, I, W):  # noqa: E741
    """DeepSeek-AI's DualPipe@3da1bbea, README: (PP/2-1)(F&B + B - 3W) with PP = 2P stages, activations PP+1."""
    found, both = analyze(make_schedule("DualPipeV", P, M), Costs(F, I, W)), F + I + W
    assert max(found.idle) == (P - 1) * (both + I + W - 3 * W) and found.peak == [2 * P + 1] * P
    assert analyze(found.schedule, Costs(F, I, W, overlap=0.9 * both)).makespan < found.makespan


# torch's.

SIZES = [(2, 4), (2, 8), (4, 8), (3, 9), (4, 16)]


@pytest.mark.parametrize("P, M", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_as_long_as_torchs(name, P, M):
    """And held as much. Its ZB-H1 of two stages a rank is another schedule."""
    ours = make_schedule(name, P, M)
    theirs = torchs(name, P, M, 1 if name in ("GPipe", "1F1B") else 2)
    if name == "ZB-H1":
        theirs = torchs(name, P, M, 2)
        assert verify(theirs).stages == 2 * P and analyze(theirs).peak[0] > analyze(ours).peak[0]
        return
    for costs in (Costs(), Costs(2, 3, 1), Costs(1, 1.5, 0.5, message=0.25)):
        assert analyze(ours, costs).makespan == pytest.approx(analyze(theirs, costs).makespan)
        assert analyze(ours, costs).peak == analyze(theirs, costs).peak


# Executed: the same virtual time, messages, and memory.

WIDE, ROWS = 32, 64
PASS = 2 * ROWS * WIDE * WIDE / 1e9  # seconds of one product, on a device that only products cost time
PRODUCTS = Device("products alone", {"float32": 1e9}, math.inf, math.inf)
TENSOR = ROWS * WIDE * 4  # bytes


def execute(schedule, layers=1, link=0.0, **options):
    """A step of stages of products, on ranks joined by wires on which a message takes ``link`` seconds."""

    def program():
        mine = {
            stage: nn.Sequential(*[nn.Linear(WIDE, WIDE, bias=False) for _ in range(layers * (1 + stage % 2))])
            for stage in schedule.stages_of(dist.get_rank())
        }
        between = torch.empty(ROWS, WIDE, device="meta")
        worker = Worker(schedule, mine, between, lambda output, target: (output * target).mean(), **options)
        worker.step(*[torch.ones(1, WIDE).expand(ROWS * schedule.microbatches, WIDE) for _ in range(2)])

    wires = Link("wires", link, math.inf, "mesh")
    return tinydist.launch(program, schedule.ranks, cluster=Cluster(PRODUCTS, schedule.ranks, wires))


@pytest.mark.parametrize("P, M", [(1, 2), (2, 3), (4, 8)])
@pytest.mark.parametrize("name", [*SCHEDULES, "found"])
def test_executed_as_analyzed(name, P, M):
    """Odd stages take twice as long. The input of stage 0 needs no gradient, so I costs it nothing there."""
    schedule, message = find_schedule(v_shape(P), M) if name == "found" else make_schedule(name, P, M), 0.5 * PASS
    size = [PASS * (1 + stage % 2) for stage in range(schedule.stages)]
    analysis = analyze(schedule, Costs(size, [0, *size[1:]], size, message))
    run = execute(schedule, link=message)
    assert run.seconds == pytest.approx(analysis.makespan, rel=1e-9)
    assert [[nbytes / TENSOR for nbytes in row] for row in run.traffic] == analysis.messages


@pytest.mark.parametrize("name", ["GPipe", "1F1B", "interleaved 1F1B", "looped BFS", "ZB-H2", "ZB-V"])
def test_holds_what_is_analyzed(name):
    """A microbatch of a stage of 4 or 8 products holds as many inputs; passes and messages hold a few tensors more."""
    P, M, layers, few = 4, 8, 4, 4
    schedule = make_schedule(name, P, M)
    run, analysis = execute(schedule, layers), analyze(schedule)
    for rank in range(1, P):  # inputs of stage 0 are the batch's
        stages = [part.stage for part in schedule.passes(rank)]
        change = {"F": 1, "B": -1, "W": -1}
        held = np.cumsum([change.get(part.kind, 0) * layers * (1 + part.stage % 2) for part in schedule.passes(rank)])
        found = max(purposes["activations"] for _, purposes in run.memory[rank].over_time()) / TENSOR
        assert held.max() <= found <= held.max() + few
        if len(set(stages)) == 1:
            assert held.max() == analysis.peak[rank] * layers * (1 + rank % 2)


def test_the_bounds_of_a_bubble():
    """Misconceptions: 1F1B has no smaller bubble than GPipe; no schedule beats its work and the way there and back."""
    for name in ("GPipe", "1F1B"):
        assert analyzed(name, 4, 8).makespan == (8 + 3) * 3
    for name, (P, M) in product(SCHEDULES, [(2, 4), (4, 8)]):
        found = analyze(make_schedule(name, P, M))
        v = found.schedule.stages // P
        assert found.makespan >= 3 * v * M + P - 1 and found.makespan >= 2 * found.schedule.stages


def test_uneven_stages():
    """The slowest stage sets the pace: with a fourth of twice the work, each further microbatch takes twice as long."""
    even, uneven = (analyze(make_schedule("1F1B", 4, 64), Costs(F, F, F)).makespan for F in ([1] * 4, [1, 1, 1, 2]))
    assert even == 3 * (64 + 3) and uneven == 6 * 64 + 3 * 3


def test_times_of_each_action():
    found = analyze(make_schedule("1F1B", 2, 2), Costs(1, 1, 1, message=0.5))
    assert [list(times) for times in found.start] == [[0, 1, 5, 8], [1.5, 2.5, 4.5, 5.5]]
    assert [list(times) for times in found.end] == [[1, 2, 7, 10], [2.5, 4.5, 5.5, 7.5]]
    assert [list(live) for live in found.live] == [[1, 2, 2, 1], [1, 1, 1, 1]]
    assert found.makespan == 10 and found.busy == [6, 6] and found.idle == [4, 4] and found.idle_in_span == [4, 0]


def test_messages_are_no_passes():
    schedule = make_schedule("ZB-H2", 4, 8)
    for costs in (Costs(), Costs(2, 3, 1, message=0.5)):
        passes, whole = analyze(schedule, costs), analyze(with_messages(schedule), costs)
        assert (whole.idle, whole.idle_in_span, whole.peak) == (passes.idle, passes.idle_in_span, passes.peak)


@pytest.mark.parametrize("costs", [Costs([1, 2, 3]), Costs(backward_weight=-1), Costs(backward_input=float("nan"))])
def test_impossible_costs(costs):
    message = r"^Costs: \w+ must be 0 or more seconds, of all stages or of each of 4, got (\[1, 2, 3\]|-1|nan)$"
    with pytest.raises(ValueError, match=message):
        analyze(make_schedule("1F1B", 4, 8), costs)
