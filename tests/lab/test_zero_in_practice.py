"""The exercises on ZeRO in practice: plans are what is measured, shards are those of one process."""

from contextlib import nullcontext
from functools import cache, partial

import pytest
import torch
from torch import nn

from tinydist import launch
from tinydist.syllabus.registry import find
from tinydist.zero import ZeRO1, ZeRO2, ZeRO3

STAGES = (1, 2, 3)

# Checkpoints and gradients.


@pytest.mark.parametrize("case", find("read_shard").cases, ids=str)
def test_shards_that_are_read_are_those_of_the_row(case):
    _, total, rank, readers = case.arguments(0)
    part = -(-total // readers)
    row = torch.zeros(part * readers)
    row[:total] = torch.arange(1.0, total + 1)
    assert torch.equal(find("read_shard").right(case).returned[0], row.view(readers, -1)[rank])


@pytest.mark.parametrize("case", find("hybrid_gradient").cases, ids=str)
def test_shards_and_norm_are_those_of_the_mean_over_all_ranks(case):
    mean = sum(case.arguments(rank)[0].float() for rank in range(case.ranks)) / case.ranks
    shards = mean.view(case.facts, -1)
    for rank, found in enumerate(find("hybrid_gradient").right(case).returned):
        assert found["the shard"].allclose(shards[rank % case.facts], atol=1e-6)
        assert found["the norm"].allclose(mean.norm(), atol=1e-6)


# Plans, beside stages that are run: gradients in fp32, Adam.

WIDTH, LAYERS = 48, 2
COUNT = 4  # bytes: Adam counts the steps of each row


def by_layers(module):
    return ZeRO3(module, units=list(module), prefetch=False)


MADE = {1: partial(ZeRO1), 2: partial(ZeRO2), 3: by_layers}


def train(stage, microbatches, steps):
    torch.set_default_dtype(torch.bfloat16)
    zero = MADE[stage](nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))))
    for _ in range(steps):
        for left in reversed(range(microbatches)):
            with zero.no_sync() if stage == 1 and left else nullcontext():  # its gradients are whole anyway
                zero.module(torch.ones(1, WIDTH)).sum().backward()
        zero.step()
        zero.zero_grad()
    return zero


def backward_after_a_step(stage):
    """It ends with all model states there."""
    zero = train(stage, 1, 1)
    zero.module(torch.ones(1, WIDTH)).sum().backward()
    return zero, len(zero.buckets)


@cache
def measured_states(ranks, stage):
    """Bytes that a rank holds, by the ledger, without Adam's counts of steps."""
    run = launch(backward_after_a_step, ranks, stage, backend="simulated", fake=True, only=[0])
    held = list(run.memory[0].over_time())[-1][1]
    return sum(held[purpose] for purpose in ("parameters", "gradients", "optimizer states")) - COUNT * run.results[0][1]


@cache
def measured_sent(ranks, stage, microbatches):
    """Bytes that a rank sends in the second step."""
    runs = (launch(train, ranks, stage, microbatches, steps, backend="simulated") for steps in (1, 2))
    one, two = (sum(run.traffic[0]) for run in runs)
    return two - one


@pytest.mark.parametrize("stage", STAGES)
def test_plans_are_what_is_measured(stage):
    plans = find("fastest_stage")
    assert plans.module.SMALL == LAYERS * WIDTH * WIDTH
    for case in plans.cases[-len(plans.module.MEASURED) :]:
        found = plans.module.planned(plans, case, {"stage": stage, "recompute": False})
        _, ranks, *_, microbatches, _, _ = case.arguments(0)
        assert found["held"] == measured_states(ranks, stage)
        assert found["sent"] == measured_sent(ranks, stage, microbatches)


def test_every_plan_is_right_somewhere():
    """Else one that is never given would not be missed."""
    plans = find("fastest_stage")
    found = [plans.right(case).returned[0] for case in plans.cases]
    chosen = {plan and (plan["stage"], plan["recompute"]) for plan in found}
    assert chosen == {None, *((stage, recompute) for stage in STAGES for recompute in (False, True))}
