"""A GPT with experts trains on any mesh as in one process; bad plans are refused; its bytes are those of a formula."""

from functools import cache, partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

import tinydist
from tinydist import plan as plans
from tinydist.experts import Router, alone, auxiliary_loss, update_biases, with_experts
from tinydist.model import GPT, GPTConfig, batch
from tinydist.training import LoadBalance, Plan, parallelize
from tinydist.training.mesh import data_rank, place_in

STEPS, ROWS, LENGTH, MAX_NORM = 3, 8, 8, 0.5
ADAM = {"lr": 1e-2, "weight_decay": 0.1}
BALANCE = LoadBalance(balance=0.5, z=0.1, bias_rate=0.05)  # so much that each changes the losses
BIASED = {"router": partial(Router, score="sigmoid", bias=True)}
GATED = {"gated": True, "shared": 1, "every": 2}


@pytest.fixture(autouse=True)
def in_float64(monkeypatch):
    monkeypatch.setitem(plans.DTYPES, "fp32", "float64")


def gpt(experts=8, **options):
    torch.manual_seed(0)
    model = GPT(GPTConfig(layers=2, heads=4, dim=8, context=LENGTH)).double()
    return with_experts(model, experts, 2, hidden=12, group=alone(), **options) if experts else model


def text(step):
    return batch(step, ROWS, LENGTH)


@cache
def in_one_process(balance=LoadBalance(), microbatches=1, options=()):
    """Losses and norms."""
    model = gpt(**dict(options))
    optimizer, found = torch.optim.AdamW(model.parameters(), **ADAM), []
    for step in range(STEPS):
        losses = 0
        for tokens, targets in zip(*(each.chunk(microbatches) for each in text(step))):
            loss = model.loss(tokens, targets) / microbatches
            losses += loss.item()
            (loss + auxiliary_loss(model, balance.balance, balance.z) / microbatches).backward()
        found.append((losses, nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM).item()))
        optimizer.step()
        optimizer.zero_grad()
        if balance.bias_rate:
            update_biases(model, balance.bias_rate)
    return found


def rows_of(engine, step):
    return [each.chunk(engine.plan.dp)[data_rank(engine.plan, place_in(engine.mesh))] for each in text(step)]


def steps_of(engine, steps=range(STEPS)):
    return [engine.step(*rows_of(engine, step))[:2] for step in steps]


def engine_of(plan, balance=None, **options):
    return parallelize(gpt(**options), plan, load_balance=balance, **ADAM)


def on_ranks(plan, *how, **options):
    def program():
        return steps_of(engine_of(plan, *how, **options))

    first, *others = tinydist.launch(program, plan.ranks, observe=False).results
    assert all(each == first for each in others)
    return first


def assert_same(found, expected):
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=0, atol=1e-10)


PLANS = [
    *(Plan(dp=4, ep=ep, max_norm=MAX_NORM) for ep in (1, 2, 4)),
    *(Plan(dp=4, ep=2, zero=zero, max_norm=MAX_NORM) for zero in (1, 2, 3)),
    Plan(dp=4, ep=2, zero=2, replicate=2, overlap_param_gather=True, max_norm=MAX_NORM),
    Plan(dp=2, cp=2, ep=4, zero=3, recompute="full", max_norm=MAX_NORM),
    Plan(dp=2, ep=2, zero=3, offload=True, max_norm=MAX_NORM),
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_losses_and_norms_are_those_of_one_process(plan):
    assert_same(on_ranks(plan), in_one_process())


@pytest.mark.parametrize("sequence", [None, "save"])
def test_tensor_ranks_cut_each_expert_and_a_shared_one(sequence):
    plan = Plan(dp=2, tp=2, ep=2, zero=1, sequence_parallel=sequence, max_norm=MAX_NORM)
    assert_same(on_ranks(plan, **GATED), in_one_process(options=tuple(GATED.items())))


@pytest.mark.parametrize(
    "plan",
    [
        Plan(dp=4, ep=2, zero=2, max_norm=MAX_NORM),
        Plan(2, 2, ep=2, zero=3, max_norm=MAX_NORM),
        Plan(tp=2, cp=2, ep=2, recompute="full", sequence_parallel="save", max_norm=MAX_NORM),
    ],
    ids=str,
)
def test_the_load_is_balanced_as_in_one_process(plan):
    """By both losses, and by biases. They change what is learned."""
    expected = in_one_process(BALANCE, options=tuple(BIASED.items()))
    assert_same(on_ranks(plan, BALANCE, **BIASED), expected)
    assert abs(expected[-1][0] - in_one_process(options=tuple(BIASED.items()))[-1][0]) > 1e-4
