"""Checkpoints of a run: what one mesh saves any other loads, number for number; what is not whole nobody does."""

from collections import defaultdict

import pytest
import safetensors.torch
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from training.small_runs import (
    decoder,
    differences,
    everything_in,
    gpt,
    gpt_with_experts,
    groups_of,
    half_frozen,
    launched,
    losses,
    made,
    saved_by,
    wider,
)

import tinydist
from tinydist import checkpoint
from tinydist.checkpoint import shard_overlap
from tinydist.checkpoint.rules import CheckpointError
from tinydist.training import Plan
from tinydist.training.checkpoint import EngineState, load, load_weights, save
from tinydist.zero import ZeRO1


def loaded_by(plan, folder, whole, make=gpt, again=None, **how):
    engine = made(plan, make, lr=0.5, **how)
    found = load(engine, folder)
    if again:
        save(engine, again, *found)
    rates = {group["lr"] for zero in engine.zero.values() for group in zero.optimizer.param_groups}
    decays = [group["weight_decay"] for zero in engine.zero.values() for group in zero.optimizer.param_groups]
    return found, engine.steps, rates, set(decays), list(differences(engine, whole))


@some.composite
def plans(draw, tp, experts=1):
    """Of 8 ranks at most."""
    tp = draw(some.sampled_from(tp))
    pp = draw(some.sampled_from([p for p in (1, 2, 3, 4) if p * tp <= 8]))
    dp = draw(some.sampled_from([d for d in (1, 2, 3, 4, 8) if d * pp * tp <= 8]))
    cp = draw(some.sampled_from([c for c in (1, 2, 3) if c * dp * pp * tp <= 8]))
    zero = draw(some.integers(0, 3))
    replicate = draw(some.sampled_from([r for r in (1, 2, 3, 4) if dp % r == 0])) if zero else None
    how = {"schedule": "interleaved", "chunks": 2} if pp == 2 and draw(some.booleans()) else {}
    data = dp * cp // (replicate or 1)
    ep = draw(some.sampled_from([e for e in (1, 2, 4) if data % e == experts % e == 0]))
    return Plan(pp, dp, tp, zero, replicate, cp=cp, ep=ep, microbatches=pp, **how)


MODELS = [(gpt, (1, 2, 3)), (decoder, (1, 2, 4)), (half_frozen, (1, 2, 3)), (gpt_with_experts, (1, 2, 3), 4)]
pairs = some.sampled_from(MODELS).flatmap(
    lambda each: some.tuples(some.just(each[0]), plans(*each[1:]), plans(*each[1:]))
)


@settings(
    max_examples=max(4, settings.default.max_examples**2 // 150),  # few every time, many where there is time
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(pairs)
def test_what_one_mesh_saves_another_loads(tmp_path, drawn):
    make, a, b = drawn
    launched(saved_by, a.ranks, a, tmp_path / "a", make)
    whole = everything_in(tmp_path / "a")
    loaded = launched(loaded_by, b.ranks, b, tmp_path / "a", whole, make, tmp_path / "b")
    for found in loaded:
        assert found == ((7, {"of": "a test"}), 1, {0.01}, {0.01, 0.0}, [])
    again = everything_in(tmp_path / "b")
    assert again.keys() == whole.keys() and all(torch.equal(again[key], whole[key]) for key in whole)


# Training goes on.


def goes_on(plan, folder, steps, first=False, make=gpt):
    """``first``: from the beginning; it saves in the midst of it."""
    engine = made(plan, make)
    start = 0 if first else load(engine, folder)[0]
    found = losses(engine, range(start, steps[0]))
    if first:
        save(engine, folder)
    return found + losses(engine, range(max(start, steps[0]), steps[1]))


def with_dropout():
    return gpt(dropout=0.2)


PLANS = [
    Plan(2, 2, 2, zero=3, microbatches=2),
    Plan(dp=4, replicate=2, zero=2, precision="bf16"),
    Plan(tp=2, sequence_parallel="save"),
]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.ranks} ranks")
def test_on_the_same_mesh_to_the_same_losses_to_the_last_bit(plan, tmp_path):
    """With dropout, whose random numbers go on."""
    begun = launched(goes_on, plan.ranks, plan, tmp_path, (2, 3), True, with_dropout)
    again = launched(goes_on, plan.ranks, plan, tmp_path, (2, 3), False, with_dropout)
    assert again == [found[2:] for found in begun] and len(again[0]) == 1


RING, SHARDED = Plan(dp=2, cp=2), Plan(pp=2, cp=2, context="gather", zero=3, microbatches=2)


@pytest.mark.parametrize("a, b", [(PLANS[2], PLANS[0]), (PLANS[0], RING), (RING, SHARDED), (SHARDED, PLANS[2])])
def test_on_another_mesh_to_the_same_losses(tmp_path, a, b):
    begun = launched(goes_on, a.ranks, a, tmp_path, (1, 3), True)[0]
    found = launched(goes_on, b.ranks, b, tmp_path, (1, 3))
    torch.testing.assert_close(found, [begun[1:]] * b.ranks, rtol=0, atol=1e-5)


def test_on_another_mesh_random_numbers_are_new(tmp_path):
    """As each rank's were from the start: the same in a tensor group, others elsewhere; and not those of the start."""

    def drawn(plan):
        engine = made(plan)
        before = torch.get_rng_state()
        load(engine, tmp_path)
        assert not torch.equal(torch.get_rng_state(), before)
        return torch.rand(()).item()

    launched(saved_by, 2, Plan(dp=2), tmp_path)
    one, two, three, four = launched(drawn, 4, Plan(dp=2, tp=2))
    assert one == two != three == four


def test_the_loss_scale_goes_on(tmp_path):
    plan = Plan(dp=2, zero=1, precision="fp16")

    def begin():
        engine = made(plan)
        engine.scaler.rule.scale = 2.0**11
        losses(engine, [0])
        save(engine, tmp_path)
        return engine.scaler.state_dict()

    def go_on(plan):
        engine = made(plan)
        load(engine, tmp_path)
        return engine.scaler and engine.scaler.state_dict()

    begun = launched(begin, 2)
    assert begun[0]["scale"] == 2.0**11 and begun[0]["good_steps"] == 1
    assert launched(go_on, 2, plan) == begun
    assert launched(go_on, 1, Plan()) == [None], "fp32 needs none"


# Weights alone.


def whole_model(folder):
    model = gpt()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    load_weights(model, folder)
    return model


def test_a_plain_model_takes_the_weights(tmp_path):
    plan = PLANS[0]
    launched(saved_by, plan.ranks, plan, tmp_path)
    whole = everything_in(tmp_path)
    for name, parameter in whole_model(tmp_path).named_parameters():
        assert torch.equal(parameter, whole[name, "weight"]), name


def test_an_engine_takes_those_of_a_plain_models_safetensors(tmp_path):
    """And trains on as the plain model does."""
    model = gpt()
    safetensors.torch.save_model(model, tmp_path / "model.safetensors")

    def program(plan):
        torch.manual_seed(9)
        engine = made(plan, lambda: torch.nn.Module.apply(gpt(), other))
        load_weights(engine, tmp_path / "model.safetensors")
        return list(differences(engine, whole)), losses(engine, range(2))

    def other(module):
        for parameter in module.parameters(recurse=False):
            torch.nn.init.normal_(parameter)

    whole = {(name, "weight"): parameter.detach() for name, parameter in model.named_parameters()}
    expected = launched(lambda: losses(made(Plan()), range(2)), 1)[0]
    for differ, found in launched(program, 4, Plan(2, tp=2)):
        assert differ == []
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_stage_of_zero_takes_what_an_engine_has_saved_and_the_reverse(tmp_path):
    """There is one format. Of what ZeRO saves an engine takes the weights: there is no position in the data."""

    def loads():
        model = gpt()
        zero = ZeRO1(model, torch.optim.AdamW, groups_of(model), lr=0.5)
        checkpoint.load(zero, tmp_path / "engine")
        checkpoint.save(zero, tmp_path / "zero")

    def takes(folder):
        engine = made(Plan(2, tp=2))
        with pytest.raises(CheckpointError, match="not saved by an engine"):
            load(engine, folder)
        load_weights(engine, folder)
        return list(differences(engine, weights))

    launched(saved_by, 8, PLANS[0], tmp_path / "engine")
    launched(loads, 3)
    whole, again = (everything_in(tmp_path / name) for name in ("engine", "zero"))
    assert again.keys() == whole.keys() and all(torch.equal(again[key], whole[key]) for key in whole)
    weights = {key: value for key, value in whole.items() if key[1] == "weight"}
    assert launched(takes, 4, tmp_path / "zero") == [[]] * 4


# What a rank reads, and holds.


LARGEST = 4 * 24 * 4 * 24  # bytes: an MLP's


def test_a_rank_reads_and_holds_what_it_owns(tmp_path, monkeypatch):
    """By the ledger: 12 bytes of each of its numbers while it loads, and not a parameter more; in the files it looks at
    no other number.
    """
    saving, loading = Plan(dp=2, zero=1), Plan(tp=2, dp=2, zero=3)
    numbers = defaultdict(list)
    view = shard_overlap.Box.view

    def counted(box, vector, inside):
        seen = view(box, vector, inside)
        numbers[dist.get_rank()].append(seen.numel())
        return seen

    def program(loads):
        engine = made(loading, wider)
        if loads:
            load(engine, tmp_path)
        return sum(size for row in EngineState(engine).rows for _, _, size in row.segments.values())

    launched(saved_by, saving.ranks, saving, tmp_path, wider)
    monkeypatch.setattr(shard_overlap.Box, "view", counted)
    built, loaded = (tinydist.launch(program, loading.ranks, loads) for loads in (False, True))
    for rank, own in enumerate(loaded.results):
        assert sum(numbers[rank]) == 2 * 3 * own, "as much as is written, three for each number"
        base = list(built.memory[rank].over_time())
        start, before = len(base), sum(base[-1][1].values())
        most = max(sum(held.values()) for _, held in list(loaded.memory[rank].over_time())[start:])
        assert 12 * own <= most - before < 12 * own + LARGEST, "with what ranks say to one another"
