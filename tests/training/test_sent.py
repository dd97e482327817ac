"""Bytes that each rank sends in a step, axis by axis: those of the formulas. And what another placement costs."""

from dataclasses import replace

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from training.trained import ROWS, made, rows_of, text

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.training import AXES, Plan, parallelize, place_of
from tinydist.training.mesh import shape_of

V, D, T, L = 256, 16, 24, 2  # of trained.model
# Times a rank's x, in a layer, to each other rank: K, V forward, backward, their gradients; eight exchanges of 1/cp
CONTEXT = {"ring": 6, "gather": 6, "ulysses": 8}
FP32 = 4  # bytes


def a_step(plan):
    engine = made(plan)
    with tinydist.region("step"):
        engine.step(*rows_of(engine, text(0)))


def by_axis(plan):
    """Of each rank, what it sends along each axis. (An all-reduce of two numbers over the world passes all.)"""
    traffic = tinydist.launch(a_step, plan.ranks, plan).between("step").traffic
    found = [dict.fromkeys(AXES, 0) for _ in traffic]
    for source, row in enumerate(traffic):
        row[(source + 1) % plan.ranks] -= 2 * FP32 * 2 * (plan.ranks - 1) / plan.ranks
        for destination, nbytes in enumerate(row):
            differ = [a for a, b, c in zip(AXES, place_of(plan, source), place_of(plan, destination)) if b != c]
            if round(nbytes):
                (axis,) = differ
                found[source][axis] += nbytes
    return [{axis: round(nbytes) for axis, nbytes in each.items()} for each in found]


def numbers(plan, stage):
    """Parameters of a rank: of blocks, and of the first and the last stage."""
    blocks = (L // plan.pp) * ((12 * D * D + 7 * D) / plan.tp + 6 * D)
    first, last = stage == 0, stage == plan.pp - 1
    tables = (first or last) * V * D / plan.tp  # tied
    return blocks + tables + first * T * D + last * 2 * D


def sent(plan):
    """Of each rank, in all. (An all-reduce of two numbers over the world is not counted.)"""
    traffic = tinydist.launch(a_step, plan.ranks, plan).between("step").traffic
    return [sum(row) - 2 * FP32 * 2 * (plan.ranks - 1) / plan.ranks for row in traffic]


def ring(ranks, rounds=1):
    return rounds * (ranks - 1) / ranks


def expected(plan, stage):
    pp, t, s, d, M = plan.pp, plan.tp, plan.shards, plan.copies, plan.microbatches
    first, last, N = stage == 0, stage == pp - 1, numbers(plan, stage)
    reductions = M if plan.zero >= 2 else 1
    gathers = 2 * M if plan.zero == 3 else 1
    tokens = ROWS / plan.dp / M * T / plan.cp
    whole = tokens * D * FP32  # what passes between layers, of a microbatch
    sums = 4 * L // pp + first + last  # all-reduces: four in a block, one behind the table, one before the head
    exchanged = CONTEXT[plan.context] / (plan.cp if plan.context == "ulysses" else 1)
    copies, cut = 0, t if plan.sequence_parallel else 1
    if cut > 1:  # a gather and a scatter for each; the table's sum is dealt out, and its gradient gathered
        copies = 2 * FP32 * (6 * D * L // pp + last * 2 * D) + first * whole
    between = (not first) + (not last)
    return {
        "pp": M * between * whole / cut + (pp > 1) * (first + last) * FP32 * V * D / t / s,
        "replicate": ring(d, 2) * FP32 * N / s * reductions,
        "cp": M * L // pp * exchanged * tokens * D / t * FP32 * (plan.cp - 1),
        "shard": ring(s) * FP32 * N * (reductions + gathers),
        "tp": M * (ring(t) * (2 * sums * whole + copies) + ring(t, 2) * last * 3 * FP32 * tokens),
    }


@pytest.mark.parametrize(
    "plan",
    [
        Plan(2, 2, 2, zero=0, microbatches=2),
        Plan(1, 2, 2, zero=1, microbatches=4, sequence_parallel="save"),
        Plan(2, 1, 2, zero=0, microbatches=2, sequence_parallel="save"),
        Plan(2, 4, 1, zero=2, replicate=2, microbatches=2),
        Plan(2, 2, 2, zero=3, microbatches=2),
        Plan(1, 4, 1, zero=3, replicate=2, microbatches=2),
    ],
    ids=str,
)
def test_each_axis_sends_what_the_formula_says(plan):
    """ZeRO 0 and 1 reduce once a step, 2 and 3 in every microbatch; 3 gathers twice in each."""
    for rank, found in enumerate(by_axis(plan)):
        assert found == pytest.approx(expected(plan, place_of(plan, rank).pp)), rank


@pytest.mark.parametrize("context", CONTEXT)
@pytest.mark.parametrize(
    "plan",
    [Plan(cp=2), Plan(dp=2, cp=2, zero=3, microbatches=2), Plan(2, 1, 2, zero=1, cp=2)],
    ids=str,
)
def test_context_ranks_send_keys_and_values_and_share_states(plan, context):
    plan = replace(plan, context=context)
    for rank, found in enumerate(sent(plan)):
        assert found == pytest.approx(sum(expected(plan, place_of(plan, rank).pp).values())), rank


def test_reduced_once_a_step_or_in_every_microbatch_as_the_plan_says():
    def sent(zero, reduce_each):
        return by_axis(Plan(dp=2, zero=zero, microbatches=2, reduce_each=reduce_each))[0]["shard"]

    N = numbers(Plan(dp=2), 0)
    assert [sent(zero, each) for zero in (1, 2) for each in (False, True)] == [4 * N, 6 * N, 4 * N, 6 * N]
    assert [sent(3, each) for each in (False, True)] == [10 * N, 12 * N]


# Where axes lie. A model of a size at which links count, without numbers.

WIDE = GPTConfig(vocab_size=4096, context=1024, layers=2, heads=16, dim=2048)
PLAN = Plan(dp=2, tp=4, zero=1, microbatches=4, precision="bf16")


def step_with(axes):
    sizes = shape_of(PLAN)._asdict()
    mesh = init_device_mesh("cpu", [sizes[axis] for axis in axes], mesh_dim_names=axes)
    engine = parallelize(GPT(WIDE), PLAN, mesh=mesh)
    tokens = torch.zeros(16, WIDE.context, dtype=torch.long)
    with tinydist.region("step"):
        engine.step(tokens, tokens)


def test_tensor_ranks_on_two_nodes_are_slower_than_in_one():
    """On 2 nodes of 4: in a node, tp passes NVSwitch, and data the network cards; or the other way round."""
    right, wrong = (
        tinydist.launch(step_with, 8, axes, fake=True, only=[0], cluster="2 x 4").between("step")
        for axes in (AXES, AXES[::-1])
    )
    assert wrong.seconds > 1.25 * right.seconds
    node, other = (sum(run.traffic[0][4:]) for run in (right, wrong))
    assert other > 2 * node
