"""DeepSpeed's program sends, and keeps, what DeepSpeed 0.19.8 did by its defaults (benchmarks/deepspeed_keys.py)."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from tinydist.hardware import find_cluster
from tinydist.planner import DEEPSPEED, MEGATRON_LM, Measured, Model, Plan, find_model, memory, step_time
from tinydist.planner.uses import blocks_that_stay, gathered_by_use

STORED = Path(__file__).parents[2] / "notebooks" / "data" / "11b_deepspeed.csv"
SMALL = Model("of the benchmark", layers=4, width=256, heads=4, vocabulary=2048, tokens=32)
TABLE, MICROBATCHES = 2048 * 256, 4
OFTEN = {"all-gather": 1, "reduce-scatter": 1, "all-reduce": 2}


class Bytes(Measured):
    """Its seconds are the bytes that a rank sends in a ring."""

    def collective(self, what, nbytes, group):
        return OFTEN[what] * nbytes * (group.ranks - 1) / group.ranks


def sent(zero, program=DEEPSPEED):
    cluster = find_cluster("A100 node")
    plan = Plan(dp=2, zero=zero, microbatches=MICROBATCHES, precision="bf16", overlap_comm=False)
    return step_time(SMALL, plan, cluster, program, Bytes(cluster)).terms["data parallelism"]


def stored(name, what="sent"):
    with STORED.open() as file:
        return next(int(row[what]) for row in csv.DictReader(file) if row["keys"] == name)


# What is sent.


@pytest.mark.parametrize("zero, off", [(0, 1e-4), (1, 1e-4), (2, 1e-4), (3, 0.04)])
def test_a_step_sends_what_was_measured(zero, off):
    """In stage 3 DeepSpeed gathers less: small parameters are never sharded."""
    assert sent(zero) == pytest.approx(stored(f"stage {zero}"), rel=off)
    assert zero < 3 or sent(zero) > stored("stage 3")


def test_without_small_parameters_that_stay_stage_3_is_exact():
    assert sent(3) == pytest.approx(stored("stage 3, no prefetch"), rel=1e-3)
    assert sent(3, replace(DEEPSPEED, reuse=0)) == pytest.approx(stored("stage 3, no prefetch, reuse 0"), rel=1e-3)


def test_the_way_of_others_is_not_what_was_measured():
    assert sent(1, MEGATRON_LM) > 1.3 * stored("stage 2, no multi-rank bucket") / MICROBATCHES
    assert sent(3, replace(DEEPSPEED, reuse=None)) > 1.4 * stored("stage 3")


def test_what_is_used_again_within_so_many_numbers_stays():
    """Of a model of 8 billion parameters only the head, of 525 million: the block before it is used 1.05e9 later."""
    llama = find_model("Llama 3 8B")
    part = llama, 1, llama.layers, True, True
    forward, backward = gathered_by_use(1e9, *part)
    assert [each == 0 for each in backward] == [True, *[False] * 33] and all(forward)
    assert blocks_that_stay(1.2e9, *part) == 1 and blocks_that_stay(1e12, *part) == llama.layers
    assert sum(gathered_by_use(1e12, *part)[1]) == 0
    assert gathered_by_use(0, *part) == (backward[:0:-1] + [forward[-1]], [forward[-1], *backward[1:]])


def test_a_tied_table_is_used_four_times():
    def gathered(reuse):
        return sum(map(sum, gathered_by_use(reuse, SMALL, 1, SMALL.layers, True, True)))

    once, norm = SMALL.parameters, 2 * SMALL.width
    assert gathered(0) == 2 * once + 2 * TABLE
    assert gathered(1) == 2 * once + TABLE - norm  # the head's backward comes at once
    assert gathered(1e12) == once


# What is held.


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_what_is_held_is_what_was_measured(zero):
    """Between steps, and at the peak of passes. The buckets make 1 GB of it, and the model some MB."""
    plan = Plan(dp=2, zero=zero, microbatches=MICROBATCHES, precision="bf16", overlap_comm=False)
    found = memory(SMALL, plan, 0, DEEPSPEED)
    states = found.terms["parameters"] + found.terms["optimizer states"]
    assert states + 1e9 * (zero == 3) == pytest.approx(stored(f"stage {zero}", "held"), rel=0.005)
    if zero:  # without buckets the step is the peak, which was not measured
        assert found.held == pytest.approx(stored(f"stage {zero}", "peak"), rel=0.01)


def test_with_overlap_stages_1_and_2_have_two_buckets():
    apart, beside = (
        memory(SMALL, Plan(dp=2, zero=2, precision="bf16", overlap_comm=each), 0, DEEPSPEED) for each in (False, True)
    )
    assert beside.held - apart.held == 1e9


def test_the_last_blocks_stay_gathered():
    llama = replace(find_model("Llama 3 8B"), vocabulary=32000, tokens=1024)
    plan = Plan(dp=64, zero=3, recompute="full", precision="bf16")
    far, near = (memory(llama, plan, 0, replace(DEEPSPEED, reuse=each)) for each in (4e9, 0))
    stay = blocks_that_stay(4e9, llama, 1, llama.layers, True, True)
    assert stay == 9 and far.held - near.held == 2 * (stay - 2) * llama.dense_layer
