"""A step: constants, and where they come from; formulas, and what they must equal; scores, on what nobody fitted."""

import csv
import math
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from tinydist.hardware import find_cluster
from tinydist.hardware.published import ALL_REDUCES, LAYERS
from tinydist.pipeline_parallel import Costs, analyze, make_schedule
from tinydist.planner import Clock, Measured, Model, Plan, find_model, step_time
from tinydist.planner.efficiency import A100
from tinydist.planner.machine import Group
from tinydist.planner.operators import CollectiveOp, Matmul, Operators
from tinydist.planner.published import table_1, table_5
from tinydist.planner.step_time import pipeline, timed

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "planner.py"))
ZERO_BUBBLE = Path(__file__).parents[1] / "pipeline_parallel" / "zero_bubble_table5_6.csv"
STAGES = {  # of the paper's table 3: width, heads, sequences of a microbatch, layers of a stage
    "1.5B": (2304, 24, 6, 3),
    "6.2B": (4096, 32, 3, 4),
    "14.6B": (5120, 40, 1, 3),
    "28.3B": (6144, 48, 1, 2),
}
NODE = find_cluster("A100 node")
WRITTEN = replace(find_model("Megatron 22B"), flash=False)  # attention's weights are
WAYS = {
    "22B": (None, "none"),
    "22B, sequence parallel": ("regather", "none"),
    "22B, full recomputation": (None, "full"),
    "22B, selective recomputation": (None, "selective"),
    "22B, selective recomputation, sequence parallel": ("regather", "selective"),
}


def geometric(numbers):
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


# Constants.


def test_the_best_product_takes_what_was_measured():
    M, N, K = A100.tiles.best
    machine = Measured(NODE, efficiency=replace(A100, beside=1.0))
    assert 2 * M * N * K / machine.product(1, M, N, K) == pytest.approx(A100.matmul, rel=1e-9)


@pytest.mark.parametrize("shape", [(100, 100, 4096), (1024, 10500, 5120), (8192, 8192, 64)])
def test_small_odd_and_thin_products_are_slower(shape):
    machine = Measured(NODE)
    best = 2 * math.prod(A100.tiles.best) / machine.product(1, *A100.tiles.best)
    assert 2 * math.prod(shape) / machine.product(1, *shape) < 0.98 * best


def test_products_beside_others_are_those_of_zero_bubble():
    machine, ratios = Measured(NODE, efficiency=replace(A100, beside=1.0)), []
    for row in csv.DictReader(ZERO_BUBBLE.open()):
        width, heads, b, layers = STAGES[row["model"]]
        own = Operators(Model("", layers, width, heads, 50304, 1024), 1, b)
        alone = layers * sum(machine.product(*own.of_weight(each)) for each in (own.qkv, own.out, own.up, own.down))
        ratios.append(float(row["TW"]) * 1e-3 / alone)
    assert geometric(ratios) == pytest.approx(A100.beside, abs=0.001)


def off_by(gap):
    """Natural logarithms, of what was published of a layer."""
    machine = Measured(NODE, efficiency=replace(A100, gap=gap))
    for name, (sequence, recompute) in WAYS.items():
        own = Operators(WRITTEN, 8, 4, sequence)
        passes = own.forward(), own.backward() + own.recomputed(recompute)
        for each, published in zip(passes, (LAYERS[name].forward, LAYERS[name].backward)):
            yield math.log(timed(each, machine, Group(8, 8), overlap=True).seconds / published)


def test_the_gap_is_that_of_a_published_layer():
    def squares(gap):
        return sum(off**2 for off in off_by(gap))

    best = min(range(60), key=lambda microseconds: squares(microseconds * 1e-6))
    assert best * 1e-6 == pytest.approx(A100.gap)
    assert max(map(abs, off_by(A100.gap))) < 0.03


@pytest.mark.parametrize("cluster, name", [("A100 node", "8 x A100"), ("B200 node", "8 x B200")])
def test_large_all_reduces_take_what_was_measured(cluster, name):
    machine = Measured(find_cluster(cluster))
    for nbytes, bandwidth in ALL_REDUCES[name].items():
        if nbytes >= 2**28:
            found = machine.collective("all-reduce", nbytes, Group(8, 8))
            assert found == pytest.approx(2 * 7 / 8 * nbytes / bandwidth, rel=0.2)


# Operators.


@pytest.mark.parametrize("t, sequence", [(1, None), (8, None), (8, "save"), (8, "regather")])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_a_block_computes_the_flops_of_the_formula(t, sequence, recompute):
    model = WRITTEN
    own = Operators(model, t, 4, sequence)
    found = own.forward() + own.backward() + own.recomputed(recompute)
    products = [getattr(each, "product", each) for each in found]
    flops = sum(each.flops for each in products if isinstance(each, Matmul))
    again = model.flops(1, recompute) - model.flops(1)
    a_layer = 4 * model.tokens * 3 * model.layer_flops + 4 * again / model.layers
    assert t * flops == pytest.approx(a_layer, rel=1e-12)


@pytest.mark.parametrize("sequence, numbers", [(None, 8), ("save", 8), ("regather", 10)])
def test_a_block_sends_the_bytes_of_the_formula(sequence, numbers):
    """In units of bsh numbers (t-1)/t: an all-reduce counts 2, its halves 1."""
    own = Operators(WRITTEN, 8, 4, sequence)
    sent = [getattr(each, "sent", each) for each in own.forward() + own.backward()]
    counts = [
        each.nbytes / own.x * (1 + (each.what == "all-reduce")) for each in sent if isinstance(each, CollectiveOp)
    ]
    assert sum(counts) == numbers


# The pipeline.


@pytest.mark.parametrize(
    "P, M, chunks", [(4, 8, 1), (4, 4, 1), (4, 2, 1), (8, 32, 1), (4, 8, 2), (4, 16, 4), (8, 8, 3)]
)
def test_the_makespan_is_that_of_the_analysis(P, M, chunks):
    name = "interleaved 1F1B" if chunks > 1 else "1F1B"
    costs = Costs(forward=1 / chunks, backward_input=1 / chunks, backward_weight=1 / chunks)
    plan = Plan(pp=P, microbatches=M, chunks=chunks, schedule="interleaved" if chunks > 1 else "1f1b")
    found = analyze(make_schedule(name, P, M, chunks if chunks > 1 else None), costs).makespan
    assert pipeline([3.0] * P, plan) == pytest.approx(found, rel=1e-9)


def test_the_slowest_rank_sets_the_pace():
    """As the last one, which has the head: to 2 %."""
    forward = [1.0] * 7 + [1.3]
    costs = Costs(forward=forward, backward_input=forward, backward_weight=forward)
    found = analyze(make_schedule("1F1B", 8, 64), costs).makespan
    assert pipeline([3 * each for each in forward], Plan(pp=8, microbatches=64)) == pytest.approx(found, rel=0.02)


# Steps that were measured.


def test_steps_of_korthikanti_are_predicted():
    errors = [abs(BENCHMARK["error"](BENCHMARK["predicted"](row).seconds, row)) for row in table_5()]
    assert sum(errors) / len(errors) < 0.02 and max(errors) < 0.035


def test_gains_of_korthikanti_are_predicted():
    assert all(abs(found - published) < 2.5 for published, found, _ in BENCHMARK["gains"]([*table_5()]))


def test_steps_of_sc_21_are_predicted_too_short():
    """By the same constants: a program that was a year older. The same plan was published 54.08 s and 49.05 s."""
    errors = [BENCHMARK["error"](BENCHMARK["predicted"](row).seconds, row) for row in table_1()]
    assert -0.08 < sum(errors) / len(errors) < 0 and min(errors) > -0.12


def test_terms_add_up_and_shares_of_the_peak_are_parts():
    for row in [*table_5(), *table_1()]:
        step = step_time(row.model, row.plan, row.cluster)
        assert step.seconds == pytest.approx(sum(step.terms.values()))
        assert 0 < step.mfu < 1 and min(step.terms.values()) >= 0


# Laws.

BASE = Plan(pp=4, dp=4, tp=4, microbatches=16, precision="bf16")
CLUSTER = NODE.pod(8)
SMALL = find_model("Megatron 22B")


@pytest.mark.parametrize("slower", [dict(matmul=200e12), dict(memory=0.5), dict(wire=0.3), dict(far_wire=0.2)])
def test_a_slower_part_takes_longer(slower):
    machine = Measured(CLUSTER)
    less = replace(machine, efficiency=replace(machine.efficiency, **slower))
    assert step_time(SMALL, BASE, CLUSTER, less).seconds > step_time(SMALL, BASE, CLUSTER, machine).seconds


@pytest.mark.parametrize(
    "change", [dict(recompute="full"), dict(microbatches=32), dict(overlap_comm=False), dict(zero=3)]
)
def test_more_work_or_less_overlap_takes_longer(change):
    both = [step_time(SMALL, plan, CLUSTER).seconds for plan in (BASE, replace(BASE, **change))]
    assert both[0] < both[1]


def test_fused_kernels_have_16_bits():
    with pytest.raises(ValueError, match="precision must be one of fp16, bf16 for fused kernels, got 'fp32'"):
        step_time(SMALL, Plan(dp=8), CLUSTER)


def test_a_clock_without_losses_is_faster():
    fast, real = step_time(SMALL, BASE, CLUSTER, Clock(CLUSTER)), step_time(SMALL, BASE, CLUSTER)
    assert fast.seconds < real.seconds
