"""Checkpoints of a run: what one mesh saves any other loads, number for number; what is not whole nobody does."""

import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from training.small_runs import decoder, differences, everything_in, gpt, losses, made, shake

import tinydist
from tinydist.training import Plan
from tinydist.training.checkpoint import load, load_weights, save
from tinydist.zero.checkpoint_rules import CheckpointError

FEW = settings(
    max_examples=settings.default.max_examples // 5, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def saved_by(plan, folder, make=gpt, **how):
    engine = made(plan, make, **how)
    shake(engine)
    save(engine, folder, step=7, extra={"of": "a test"})
    return engine.steps


def loaded_by(plan, folder, whole, make=gpt, again=None, **how):
    engine = made(plan, make, lr=0.5, **how)
    found = load(engine, folder)
    if again:
        save(engine, again, *found)
    rates = {group["lr"] for zero in engine.zero.values() for group in zero.optimizer.param_groups}
    decays = [group["weight_decay"] for zero in engine.zero.values() for group in zero.optimizer.param_groups]
    return found, engine.steps, rates, set(decays), list(differences(engine, whole))


@some.composite
def plans(draw, tp=(1, 2, 3)):
    tp = draw(some.sampled_from(tp))
    pp = draw(some.sampled_from([p for p in (1, 2, 3, 4) if p * tp <= 8]))
    dp = draw(some.sampled_from([d for d in (1, 2, 3, 4, 8) if d * pp * tp <= 8]))
    zero = draw(some.integers(0, 3))
    replicate = draw(some.sampled_from([r for r in (1, 2, 3, 4) if dp % r == 0])) if zero else None
    chunks = 2 if pp == 2 and draw(some.booleans()) else 1
    return Plan(
        pp, dp, tp, zero, replicate, microbatches=pp, schedule="interleaved" if chunks > 1 else "1f1b", chunks=chunks
    )


def check(a, b, folder, make, **how):
    tinydist.launch(saved_by, a.ranks, a, folder / "a", make, observe=False, **how)
    whole = everything_in(folder / "a")
    loaded = tinydist.launch(loaded_by, b.ranks, b, folder / "a", whole, make, folder / "b", observe=False).results
    for found in loaded:
        assert found == ((7, {"of": "a test"}), 1, {0.01}, {0.01, 0.0}, [])
    again = everything_in(folder / "b")
    assert again.keys() == whole.keys() and all(torch.equal(again[key], whole[key]) for key in whole)


@FEW
@given(plans(), plans())
def test_what_one_mesh_saves_another_loads(tmp_path, a, b):
    check(a, b, tmp_path, gpt)


@FEW
@given(plans(tp=(1, 2, 4)), plans(tp=(1, 2, 4)))
def test_with_fewer_heads_of_keys_than_ranks(tmp_path, a, b):
    check(a, b, tmp_path, decoder)
