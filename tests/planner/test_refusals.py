"""What the planner cannot answer is refused in words; every other plan gets a sensible number."""

import math
import random
import re
from dataclasses import fields, replace

import pytest

from tinydist.hardware import find_cluster
from tinydist.plan import CONTEXT, LOOPED, RECOMPUTE, RULES, SCHEDULES, SEQUENCE_PARALLEL
from tinydist.planner import (
    DEEPSPEED,
    FSDP,
    MEGATRON_LM,
    PROGRAMS,
    TINYDIST,
    TORCHTITAN,
    Measured,
    Model,
    Plan,
    Program,
    RunCost,
    check,
    evaluate,
    find_model,
    memory,
    search,
    step_time,
)
from tinydist.planner.programs import SUMS

NODE, POD = find_cluster("H100 node"), find_cluster("H100 node").pod(8)
A100 = find_cluster("A100 node")
LLAMA, GPT = find_model("Llama 3 8B"), find_model("GPT-2")  # 32 heads, 32 layers; 12 and 12
DEEPSEEK, MIXTRAL = find_model("DeepSeek-V3"), find_model("Mixtral 8x7B")
ODD = replace(MIXTRAL, experts=replace(MIXTRAL.experts, inner=14337))
ONE = evaluate(GPT, Plan(dp=8, precision="bf16"), NODE)


def asked(model=LLAMA, cluster=POD, program=MEGATRON_LM, **choices):
    """The same of each: what refuses a plan."""
    plan = Plan(**{"precision": "bf16"} | choices)
    return [lambda: evaluate(model, plan, cluster, program), lambda: step_time(model, plan, cluster, program)], (
        lambda: memory(model, plan, program=program)
    )


def assert_refused(call, words, error=ValueError):
    with pytest.raises(error, match=re.escape(words)):
        call()


# Plans.


def words(value):
    """A test is called by what is said; what was given has its number."""
    return value if isinstance(value, str) else None


@pytest.mark.parametrize(
    "choices, words",
    [
        (dict(tp=3), "heads (32) must be divisible by tp (3)"),
        (dict(pp=33), "pp(33) x chunks(1) = 33 stages, but 32 layers"),
        (dict(model=find_model("Llama 3 405B"), tp=3), "heads (128) must be divisible by tp (3)"),
        (dict(model=DEEPSEEK, dp=4, cp=2), "DeepSeek-V3 has latent attention: cp (2) must be 1 for the planner"),
        (dict(model=DEEPSEEK, dp=8, program=TINYDIST), "tinydist: how it runs latent attention is not known"),
        (dict(model=DEEPSEEK, pp=31), "the first pipeline rank has 2 layers, and needs more than the 3 that have no"),
        (dict(model=MIXTRAL, dp=8, ep=4, program=FSDP), "FSDP: how it runs experts is not known to the planner"),
        (dict(model=MIXTRAL, dp=16, ep=16), "experts (8) must be divisible by ep (16)"),
        (dict(model=MIXTRAL, tp=2), "Megatron-LM: experts with tp (2) > 1 need sequence_parallel"),
        (dict(model=ODD, tp=4, program=TINYDIST), "the experts' width (14337) must be divisible by tp (4)"),
        (dict(dp=8, ep=2), "ep (2) ranks share the experts, but the model has none"),
        (dict(dp=8, zero=1, offload=True), "offload is not supported by the planner yet"),
        (dict(dp=8, reduce_each=True), "reduce_each is not supported by the planner yet"),
        (dict(pp=2, layers=(8, 24)), "layers is not supported by the planner yet"),
        (dict(pp=2, chunks=2, schedule="bfs", microbatches=2), "bfs is not supported by the planner yet"),
        (dict(tp=2, sequence_parallel="overlap"), "sequence_parallel='overlap' is not supported by the planner yet"),
    ],
    ids=words,
)
def test_a_plan_that_a_model_does_not_suit_is_refused_everywhere(choices, words):
    timed, held = asked(**choices)
    for call, name in zip([*timed, held], ("evaluate", "step_time", "memory")):
        assert_refused(call, f"{name}: {words}")


@pytest.mark.parametrize(
    "choices, words",
    [
        (dict(dp=64, cluster=NODE), "pp(1) x dp(64) x tp(1) = 64 ranks, but the cluster has 1 x 8 = 8"),
        (dict(dp=8, precision="fp32"), "precision must be one of fp16, bf16 where a step is timed, got 'fp32'"),
        (
            dict(dp=8, cluster=A100, program=replace(MEGATRON_LM, fp8=True)),
            "Megatron-LM with fp8=True: A100 80GB has no fp8, only float64, float32, tf32, bfloat16, float16, int8",
        ),
    ],
    ids=words,
)
def test_a_step_that_cannot_be_timed_is_refused(choices, words):
    for call, name in zip(asked(**choices)[0], ("evaluate", "step_time")):
        assert_refused(call, f"{name}: {words}")


def test_a_machine_is_that_of_the_cluster():
    words = "step_time: the machine is of another cluster: 1 x 8 A100 80GB"
    assert_refused(lambda: step_time(GPT, Plan(dp=8, precision="bf16"), NODE, machine=Measured(A100)), words)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: Plan(precision="fp8"), "Plan: precision must be one of fp32, bf16, fp16, got 'fp8'"),
        (lambda: RunCost(ONE, 1e9, goodput=3), "RunCost: goodput must be a number > 0 and at most 1, got 3"),
        (lambda: RunCost(ONE, 1e9, goodput=0), "RunCost: goodput must be a number > 0 and at most 1, got 0"),
        (lambda: RunCost(ONE, math.nan), "RunCost: tokens must be a finite number > 0, got nan"),
        (lambda: RunCost(ONE, -1), "RunCost: tokens must be a finite number > 0, got -1"),
        (lambda: RunCost(ONE, 1e9, price=math.nan), "RunCost: price must be a finite number >= 0, got nan"),
        (lambda: search(LLAMA, NODE, 0), "search: batch must be an integer >= 1, got 0"),
        (lambda: search(LLAMA, NODE, 64, devices=9), "1 node x 8 devices = 8, but 9 ranks were requested"),
        (lambda: search(LLAMA, NODE, 64, tp=0), "search: tp must be an integer >= 1, got 0"),
        (lambda: search(LLAMA, NODE, 64, tp=3), "no degrees divide the devices and the batch, tp=3"),
        (lambda: search(LLAMA, NODE, 64, precision="fp8"), "search: precision must be one of fp32, bf16, fp16, got"),
        (lambda: search(LLAMA, NODE, 64, precision="fp32"), "precision must be one of fp16, bf16 where a step is"),
        (lambda: search(LLAMA, NODE, 64, microbatch="x"), "search: microbatch must be an integer >= 1, got 'x'"),
        (lambda: search(LLAMA, NODE, 64, optimizer="sgd"), "search: optimizer is not a choice that can be fixed"),
        (lambda: search(LLAMA, NODE, 64, dp=2), "search: dp is not a choice that can be fixed: these are pp, tp, zero"),
        (lambda: search(LLAMA, NODE, 64, replicate=3), "must be divisible by replicate (3)"),
        (lambda: search(LLAMA, NODE, 64, offload=True, zero=1, pp=1), "offload is not supported by the planner yet"),
        (lambda: search(LLAMA, NODE, 64, ep=2, tp=1, pp=1), "ep (2) ranks share the experts, but the model has none"),
        (lambda: search(DEEPSEEK, NODE, 64, program=TINYDIST, pp=1), "how it runs latent attention is not known"),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused(call, words):
    assert_refused(call, words)


# Programs.


@pytest.mark.parametrize(
    "program, choices, words",
    [
        (MEGATRON_LM, dict(zero=2, pp=2, dp=4), "Megatron-LM cannot run zero=2 with pp = 2: choose 0 or 1"),
        (MEGATRON_LM, dict(pp=2, schedule="gpipe"), "Megatron-LM cannot run schedule='gpipe': choose 1f1b or inter"),
        (
            MEGATRON_LM,
            dict(tp=2, sequence_parallel="save"),
            "cannot run sequence_parallel='save': choose regather or N",
        ),
        (MEGATRON_LM, dict(recompute="per_op"), "cannot run recompute='per_op': choose none or selective or full"),
        (
            MEGATRON_LM,
            dict(pp=5),
            "layers (32), with embedding and head (34), must be divisible by pp (5) x chunks (1)",
        ),
        (
            MEGATRON_LM,
            dict(pp=4, chunks=2, schedule="interleaved", microbatches=6),
            "interleaved 1F1B: microbatches (6) must be divisible by pp (4)",
        ),
        (
            MEGATRON_LM,
            dict(dp=2, zero=1, overlap_param_gather=True, overlap_comm=False),
            "needs overlap_comm (--overlap-",
        ),
        (replace(MEGATRON_LM, compiled=True), {}, "Megatron-LM has no compiled=True"),
        (DEEPSPEED, dict(zero=2, pp=2, dp=4), "DeepSpeed cannot run zero=2 with pp = 2: choose 0 or 1"),
        (DEEPSPEED, dict(zero=3, pp=2, dp=4), "DeepSpeed cannot run zero=3 with pp = 2: choose 0 or 1"),
        (DEEPSPEED, dict(zero=1, dp=4, replicate=2), "replica groups (MiCS) are for ZeRO 3: replicate (2) must be 1"),
        (
            DEEPSPEED,
            dict(zero=1, dp=4, overlap_param_gather=True),
            "DeepSpeed: it gathers parameters after the optimizer's step: overlap_param_gather must be False",
        ),
        (DEEPSPEED, dict(tp=2, sequence_parallel="regather"), "sequence_parallel='regather': choose None"),
        (replace(DEEPSPEED, fp8=True), {}, "DeepSpeed has no fp8=True"),
        (FSDP, dict(zero=1, dp=4), "FSDP cannot run zero=1: choose 0 or 2 or 3"),
        (FSDP, dict(pp=2), "FSDP: it has no pipeline: pp (2) must be 1"),
        (FSDP, dict(tp=2), "FSDP: its tensor parallelism splits MLPs only: tp (2) must be 1"),
        (TORCHTITAN, dict(zero=3, pp=2, dp=4), "torchtitan cannot run zero=3 with pp = 2: choose 0 or 1"),
        (TORCHTITAN, dict(precision="fp16"), "training.mixed_precision_param is bfloat16 or float32: precision='fp16'"),
        (TORCHTITAN, dict(recompute="selective"), "torchtitan cannot run recompute='selective': choose none or per_op"),
        (TORCHTITAN, dict(pp=15), "no number of layers per stage makes 15 stages of 32 + 2 layers"),
        (TINYDIST, dict(recompute="per_op"), "tinydist cannot run recompute='per_op'"),
        (TINYDIST, dict(dp=2, overlap_comm=False), "tinydist: gradients are reduced in backward: overlap_comm must be"),
        (replace(TINYDIST, compiled=True), {}, "tinydist has no compiled=True"),
    ],
    ids=words,
)
def test_what_a_program_cannot_run_is_refused_everywhere(program, choices, words):
    timed, held = asked(program=program, **choices)
    for call in [*timed, held]:
        assert_refused(call, words)
    assert_refused(lambda: program.options(Plan(**{"precision": "bf16"} | choices), LLAMA), words)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=str)
def test_only_what_a_program_can_run_is_searched_and_all_of_it_has_flags(program):
    found = search(LLAMA, POD.pod(2), 64, program=program)
    for each in found.candidates:
        check(each.plan, LLAMA, 16, POD, program)
    for each in found.candidates[::23]:
        assert program.options(each.plan, LLAMA)


# Any plan at all.

MODELS = [
    LLAMA, GPT, find_model("Llama 2 70B"), find_model("BLOOM 176B"), find_model("Mixtral 8x7B"),
    Model("odd", 7, 96, 6, 101, 33, kv_heads=3, inner=100),
]  # fmt: skip
ANY = Program("any program", fused=True)


def any_plan(draw):
    """Of choices that may not suit each other; half of the time of those that often do."""
    tame = draw.random() < 0.5
    degrees = [1, 2, 4] if tame else [1, 2, 3, 8, 64, 99]
    how = dict(pp=draw.choice(degrees), tp=draw.choice(degrees), dp=draw.choice(degrees))
    how |= dict(zero=draw.choice(range(4)), recompute=draw.choice(RECOMPUTE), overlap_comm=draw.random() < 0.8)
    how |= dict(microbatches=draw.choice([1, 2, 3, 8, 10**6]), microbatch=draw.choice([1, 2, 3, 1000]))
    how |= dict(precision="bf16" if tame else draw.choice(["bf16", "fp16", "fp32"]))
    how |= dict(cp=draw.choice(degrees), context=draw.choice(CONTEXT)) if draw.random() < 0.1 else {}
    if how["tp"] > 1 or not tame:
        how |= dict(sequence_parallel=draw.choice([None, *SEQUENCE_PARALLEL]))
    if how["pp"] > 1 or not tame:
        schedule = draw.choice([*SCHEDULES])
        how |= dict(schedule=schedule, chunks=draw.choice([2, 3]) if schedule in LOOPED else 1)
    return Plan(**how if tame else how | dict(replicate=draw.choice([None, 1, 2]), offload=draw.random() < 0.05))


def outcome(draw):
    """The number, once it was seen to be sensible; or None."""
    model, cluster = draw.choice(MODELS), draw.choice([NODE, POD, A100, A100.pod(16)])
    slow = replace(MEGATRON_LM, flash=False, blocking=True, sums=draw.choice(SUMS))
    program = draw.choice([*PROGRAMS.values(), ANY, ANY, replace(MEGATRON_LM, flash=False), slow])
    try:
        plan = any_plan(draw)
        found = evaluate(model, plan, cluster, program)
    except ValueError as error:
        assert re.match("(Plan|evaluate): ", str(error)), error
        return None
    check(plan, model, plan.ranks, cluster, program)
    assert 0 < found.seconds < math.inf and 0 < found.step.mfu < 1, plan
    assert all(0 <= each < math.inf for each in found.step.terms.values()), (plan, found.step.terms)
    assert all(0 <= each < math.inf for each in found.memory.terms.values()), (plan, found.memory.terms)
    return found.seconds


def test_any_plan_gets_a_sensible_number_or_a_refusal():
    draw = random.Random(1)
    outcomes = [outcome(draw) for _ in range(10_000)]
    assert 0.1 < sum(each is not None for each in outcomes) / len(outcomes) < 0.9


def test_rules_are_those_of_all_fields_of_a_plan():
    assert [*RULES] == [each.name for each in fields(Plan)]


@pytest.mark.parametrize(
    "plan, program, words",
    [
        (Plan(dp=4, cp=2, precision="bf16"), TORCHTITAN, r"has sliding windows: cp \(2\) must be 1"),
        (Plan(dp=8, precision="bf16"), replace(MEGATRON_LM, flash=False), "sliding windows save nothing there"),
    ],
)
def test_windows_where_nothing_is_saved(plan, program, words):
    with pytest.raises(ValueError, match=words):
        step_time(replace(LLAMA, windows=(1024, None)), plan, NODE, program)
