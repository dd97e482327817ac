"""Bytes at the peak, by the planner and by the ledger of a fake run of the same plan."""

import random
from dataclasses import replace

import pytest
from planner.fake_runs import DROPPED, LLAMA, SMALL, held, model_of, planned, program_of, run

from tinydist.attention import DecoderConfig
from tinydist.hardware import find_cluster
from tinydist.model import GPTConfig
from tinydist.plan import CONTEXT
from tinydist.planner import Plan, Program, evaluate, find_model, memory

LONG = replace(SMALL, context=1024)
FEW = [  # a configuration and its tokens, sequences of a microbatch, choices
    ((SMALL, 128), 8, dict(microbatches=2)),
    ((DROPPED, 128), 8, dict(recompute="selective", dp=2, zero=1)),
    ((DROPPED, 128), 2, dict(dp=4, zero=2, microbatches=2)),
    ((SMALL, 128), 8, dict(tp=2, dp=2, zero=3, sequence_parallel="regather")),
    ((LLAMA, 256), 4, dict(dp=2, zero=3)),
    *[((LONG, 1024), 2, dict(cp=4, zero=1, context=context)) for context in CONTEXT],
    ((LONG, 1024), 4, dict(cp=2, dp=2, zero=2, microbatches=2, recompute="full")),
    ((LONG, 1024), 4, dict(cp=8, zero=3, recompute="selective")),
    ((LONG, 1024), 4, dict(cp=2, tp=2, sequence_parallel="regather", context="ulysses")),
    ((LLAMA, 1024), 4, dict(cp=2, dp=2, zero=3, context="gather")),
    ((LLAMA, 1024), 4, dict(cp=4, recompute="full")),
]
MODELS = [  # GPTs, and Llamas of the width of 7B, and of 8B with its vocabulary and heads; with fewer layers
    (GPTConfig(vocab_size=50304, context=1024, layers=6, heads=16, dim=2048), 1024),
    (GPTConfig(vocab_size=50304, context=1024, layers=6, heads=16, dim=2048, dropout=0.1), 1024),
    (DecoderConfig(vocab_size=32000, layers=4, heads=32, kv_heads=32, dim=4096), 1024),
    (DecoderConfig(vocab_size=128256, layers=4, heads=32, kv_heads=8, dim=4096), 2048),
]


def many(number=30, seed=1):
    """Plans of up to 8 ranks."""
    draw = random.Random(seed)
    for _ in range(number):
        pp, tp, dp = draw.choice(
            [(1, 1, 1), (1, 2, 1), (1, 1, 4), (1, 2, 2), (2, 1, 1), (2, 2, 1), (2, 1, 2), (4, 1, 1), (1, 4, 2)]
        )
        choices = dict(pp=pp, tp=tp, dp=dp, zero=draw.choice([0, 1, 2, 3]) if dp > 1 else 0)
        choices |= dict(microbatches=draw.choice([1, 2, 4]), recompute=draw.choice(["none", "selective", "full"]))
        choices |= dict(sequence_parallel=draw.choice([None, "save", "regather"]) if tp > 1 else None)
        choices |= dict(precision=draw.choice(["bf16", "bf16", "fp32"]))
        yield draw.choice(MODELS), draw.choice([1, 2, 4]), choices


def check(sizes, b, choices):
    model = model_of(*sizes)
    plan = planned(b, **choices)
    found = run(sizes[0], model, plan)
    for rank in sorted({0, plan.pp - 1}):
        assert memory(model, plan, rank, program_of(sizes[0])).held == pytest.approx(
            held(found, plan, rank), rel=0.01
        ), (plan, rank)


@pytest.mark.parametrize("sizes, b, choices", FEW)
def test_a_rank_holds_what_the_ledger_has(sizes, b, choices):
    check(sizes, b, choices)


@pytest.mark.exhaustive
@pytest.mark.parametrize("sizes, b, choices", [*many()])
def test_a_rank_holds_what_the_ledger_has_in_many_plans(sizes, b, choices):
    check(sizes, b, choices)


# Laws.

MODEL = find_model("Llama 3 8B")
BASE = Plan(pp=2, dp=8, tp=4, zero=1, microbatches=8, precision="bf16")


def of(flash=True, **changes):
    return memory(MODEL, replace(BASE, **changes), program=Program("any", fused=True, flash=flash)).held


def test_what_is_sharded_or_computed_again_is_not_held():
    assert of(zero=0) > of() > of(zero=2) > of(zero=3)
    assert (
        of()
        > of(sequence_parallel="save")
        > of(sequence_parallel="regather")
        > of(sequence_parallel="regather", recompute="full")
    )
    assert of(flash=False) > of(flash=False, recompute="selective") > of(flash=False, recompute="full")
    assert of() > of(recompute="per_op") > of(recompute="full")
    assert of(microbatch=4) > of(microbatch=2) > of()


def test_the_first_rank_of_a_pipeline_holds_most_activations():
    plan = Plan(pp=8, microbatches=16, tp=4, precision="bf16")
    held = [memory(MODEL, plan, rank).terms["activations"] for rank in range(7)]
    assert held == sorted(held, reverse=True) and held[0] >= 4 * held[-1]


def test_states_are_16_bytes_a_parameter_and_2_more_in_fp32_gradients():
    model = find_model("Megatron 7.5B")
    found = memory(model, Plan(microbatches=2, recompute="full", precision="bf16"))
    states = sum(found.terms[what] for what in ("parameters", "gradients", "optimizer states"))
    assert states == pytest.approx(18 * model.parameters, rel=1e-9)


def test_the_allocator_and_the_framework_stand_apart():
    found = evaluate(MODEL, BASE, find_cluster("H100 node").pod(8)).memory
    assert found.total == pytest.approx(found.held + sum(found.overhead.values()))
    assert set(found.overhead) == {"allocator", "framework"}
