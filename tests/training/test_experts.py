"""A GPT with experts trains on any mesh as in one process; bad plans are refused; its bytes are those of a formula."""

import re
from functools import cache, partial

import pytest
import torch
from sampled import later, sampled
from torch import nn

import tinydist
from tinydist import plan as plans
from tinydist.experts import EvenRouter, Router, alone, auxiliary_loss, update_biases, with_experts
from tinydist.model import GPT, GPTConfig, batch
from tinydist.training import LoadBalance, Plan, load, load_weights, parallelize, save
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
def in_one_process(balance=None, microbatches=1, options=()):
    """Losses and norms."""
    model, balance = gpt(**dict(options)), balance or LoadBalance()
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
    *(later(Plan(dp=4, ep=2, zero=zero, max_norm=MAX_NORM)) for zero in (1, 2, 3)),
    Plan(dp=4, ep=2, zero=2, replicate=2, overlap_param_gather=True, max_norm=MAX_NORM),
    Plan(dp=2, cp=2, ep=4, zero=3, recompute="full", max_norm=MAX_NORM),
    later(Plan(dp=2, ep=2, zero=3, offload=True, max_norm=MAX_NORM)),
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


def test_microbatches_are_balanced_each():
    expected = in_one_process(LoadBalance(balance=0.5), 2)
    plan = Plan(pp=2, microbatches=2, max_norm=MAX_NORM)
    assert_same(on_ranks(plan, LoadBalance(balance=0.5)), expected)


# Checkpoints.


@pytest.mark.parametrize(
    "saves, loads",
    [
        (Plan(dp=4, ep=4, zero=1), Plan(dp=2, tp=2, ep=2, zero=3)),
        (Plan(2, 2, ep=2, zero=3), Plan()),
        (Plan(), Plan(dp=2, cp=2, ep=4, zero=2)),
    ],
    ids=str,
)
def test_training_goes_on_with_another_ep(tmp_path, saves, loads):
    """The next steps are those of the run that was not interrupted, whose biases have moved, too."""
    make = partial(engine_of, balance=BALANCE, **BIASED)

    def first():
        engine = make(saves)
        steps_of(engine, range(2))
        save(engine, tmp_path)
        return steps_of(engine, range(2, 4))

    def then():
        engine = make(loads)
        load(engine, tmp_path)
        return steps_of(engine, range(2, 4))

    (expected, *_), (found, *_) = (
        tinydist.launch(program, plan.ranks, observe=False).results for program, plan in ((first, saves), (then, loads))
    )
    assert_same([loss for loss, _ in found], [loss for loss, _ in expected])


def test_a_plain_model_with_all_experts_loads_the_weights(tmp_path):
    plan = Plan(dp=4, ep=4)

    def program():
        engine = engine_of(plan)
        steps_of(engine)
        save(engine, tmp_path)
        return engine.evaluate(*rows_of(engine, 0))

    (loss, *_) = tinydist.launch(program, 4, observe=False).results
    model = gpt()
    load_weights(model, tmp_path)
    assert model.loss(*text(0)).item() == pytest.approx(loss, abs=1e-10)


# What a rank holds, and sends.


def numbers():
    """Of dense parts, and of experts."""
    sizes = [(".experts." in name, parameter.numel()) for name, parameter in gpt().named_parameters()]
    return [sum(size for is_expert, size in sizes if is_expert == part) for part in (False, True)]


def ring(ranks, rounds=1):
    return rounds * (ranks - 1) / ranks


@pytest.mark.parametrize("zero, ep", sampled([(1, 2), (3, 2)], [(zero, ep) for zero in range(4) for ep in (1, 2, 4)]))
def test_a_rank_holds_and_sends_the_bytes_of_the_formulas(zero, ep):
    """Held at the end of a second backward. All in float64, with an even router."""
    plan = Plan(dp=4, ep=ep, zero=zero)

    def program():
        engine = engine_of(plan, router=EvenRouter)
        with tinydist.region("step"):
            engine.step(*rows_of(engine, 0))
        engine.forward_backward(*rows_of(engine, 1))
        return engine

    run = tinydist.launch(program, 4)
    traffic = run.between("step").traffic
    for rank, engine in enumerate(run.results):
        buckets, whole, own, sent = engine.zero[0].buckets, 0, 0, 0
        kinds = ((1, plan.shards, plan.copies), (ep, plan.expert_shards, plan.expert_copies))
        for is_expert, (size, (parts, shards, copies)) in enumerate(zip(numbers(), kinds)):
            mine = [each for each in buckets if (".experts." in engine.names[each.parameters[0]]) == is_expert]
            padding = sum(each.sharding.padding for each in mine)
            assert padding <= len(mine) * (shards - 1)
            n = size // parts + padding
            whole, own = whole + n, own + n // shards
            sent += 8 * n * (ring(shards) * (3 if zero == 3 else 2) + ring(copies, 2) / shards)
        held = list(run.memory[rank].over_time())[-1][1]
        assert held["parameters"] == 8 * (own if zero == 3 else whole)
        assert held["gradients"] == 8 * (own if zero >= 2 else whole)
        assert held["optimizer states"] == 16 * own + 4 * len(buckets)
        assert held["communication"] == 0
        rows, layers = 2 * ROWS // 4 * LENGTH, 2  # two experts for a token
        sent += layers * ring(ep) * (4 * rows * 8 * 8 + 8 * 8)  # of width 8; counts for 8 experts
        assert sum(traffic[rank]) == pytest.approx(sent + 2 * 8 * ring(4, 2))  # a loss and a norm


# What is refused, before any rank communicates.


@pytest.mark.parametrize(
    "plan, how, words",
    [
        (Plan(dp=3, ep=3), {}, "parallelize: experts (8) must be divisible by ep (3)"),
        (Plan(dp=2, ep=2), {"experts": 0}, "parallelize: ep (2) ranks share the experts, but the model has none"),
        (Plan(dp=2), {"experts": 0, "balance": BALANCE}, "parallelize: load_balance is for a model with experts"),
        (Plan(dp=2), {"balance": BALANCE}, "bias_rate moves biases, and no router has one: Router(..., bias=True)"),
    ],
    ids=str,
)
def test_what_does_not_suit_the_experts_is_refused_in_words(plan, how, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        tinydist.launch(partial(engine_of, plan, **how), plan.ranks, observe=False)


def test_a_layer_without_all_its_experts_is_refused():
    def program():
        model = with_experts(GPT(GPTConfig(layers=1, heads=2, dim=8, context=LENGTH)), 8, 2)
        parallelize(model, Plan(dp=2, ep=2))

    words = r"shard_experts: a layer has 4 of 8 experts \(rank .\): make it with group=alone\(\)"
    with pytest.raises(ValueError, match=words):
        tinydist.launch(program, 2, observe=False)
