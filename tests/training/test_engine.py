"""A step in halves; overflow in fp16; random numbers; evaluation; real processes."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from training.trained import MAX_NORM, alone, distance, made, model, program, rows_of, text

import tinydist
from tinydist.precision import LossScaler
from tinydist.precision.loss_scaler import DynamicLossScale
from tinydist.training import Plan
from tinydist.training.mesh import place_in

# fp16.


@pytest.mark.parametrize(
    "plan", [Plan(2, 2, 1, zero=1, precision="fp16"), Plan(1, 2, 2, zero=3, precision="fp16", max_norm=1.0)], ids=str
)
def test_after_an_overflow_on_one_rank_all_skip_the_scale_shrinks_and_all_go_on(plan):
    """The last rank has an infinite gradient in the second step."""

    def run():
        engine = made(plan)
        found = []
        for step in range(3):
            batch = rows_of(engine, text(step))
            before = engine.evaluate(*batch)
            engine.forward_backward(*batch)
            if step == 1 and dist.get_rank() == plan.ranks - 1:
                next(iter(engine.zero.values())).buckets[0].grad[0] = torch.inf
            applied = engine.optimizer_step().applied
            found.append((applied, before != engine.evaluate(*batch), engine.steps, engine.scaler.rule.scale))
        return found

    for found in tinydist.launch(run, plan.ranks, observe=False).results:
        assert found == [(True, True, 1, 2.0**16), (False, False, 1, 2.0**15), (True, True, 2, 2.0**15)]


def test_in_fp16_losses_and_norms_are_nearer_to_fp32_than_those_of_bf16():
    plan = Plan(2, 1, 2, zero=2, precision="fp16", microbatches=2, max_norm=MAX_NORM)
    (found, *_) = tinydist.launch(program, 4, plan, model, 6, observe=False).results
    expected = alone(steps=6)
    for ours, bf16 in zip(distance(found, expected), distance(alone(dtype=torch.bfloat16, steps=6), expected)):
        assert ours < bf16


def test_a_scaler_may_be_another():
    def run():
        engine = made(Plan(dp=2, precision="fp16"))
        engine.scaler = LossScaler(DynamicLossScale(scale=2.0**40))
        skipped = 0
        while not engine.step(*rows_of(engine, text(0))).applied:
            skipped += 1
        return skipped, engine.scaler.rule.scale

    (first, second) = tinydist.launch(run, 2, observe=False).results
    assert first == second and first[0] > 10 and first[1] == 2.0 ** (40 - first[0])


# Random numbers.

DROPPING = partial(model, dropout=0.2)


@pytest.mark.parametrize("sequence", [None, "save"])
def test_tensor_ranks_draw_alike_and_all_others_differ(sequence):
    plan = Plan(2, 2, 2, zero=1, sequence_parallel=sequence)

    def run():
        engine = made(plan, DROPPING)
        for step in range(2):
            engine.step(*rows_of(engine, text(step)))
        copies = [p.detach().clone() for p in engine.names if not hasattr(p, "cut")]
        return place_in(engine.mesh)._replace(tp=0), torch.get_rng_state().tolist(), copies

    places, states, copies = zip(*tinydist.launch(run, 8, observe=False).results)
    assert [states.index(state) for state in states] == [places.index(place) for place in places]
    for rank in range(0, 8, 2):
        assert all(torch.equal(a, b) for a, b in zip(copies[rank], copies[rank + 1], strict=True))


def test_what_is_recomputed_drops_the_same():
    def losses(recompute):
        plan = Plan(2, 1, 2, microbatches=2, sequence_parallel="save", recompute=recompute)
        return tinydist.launch(program, 4, plan, DROPPING, 2, observe=False).results

    assert losses("none") == losses("selective") == losses("full")


# Halves, and evaluation.


def test_several_batches_may_come_before_a_step():
    """Of two halves: gradients add up, and so do losses."""
    plan = Plan(2, 2, 1, zero=1, microbatches=2, max_norm=1e9)

    def run(several):
        engine = made(plan)
        batch = rows_of(engine, text(0))
        for _ in range(several):
            engine.forward_backward(*batch)
        return engine.optimizer_step()[:2]

    one, two = (tinydist.launch(run, 4, several, observe=False).results[0] for several in (1, 2))
    assert two == pytest.approx([2 * each for each in one])


@pytest.mark.parametrize(
    "plan",
    [
        Plan(2, 2, 2, zero=3, microbatches=2, sequence_parallel="save"),
        Plan(2, 2, 1, zero=1, microbatches=2, chunks=2, schedule="bfs", layers=(1, 1, 1, 1)),
    ],
    ids=str,
)
def test_evaluation_has_no_dropout_and_changes_nothing(plan):
    make = partial(model, plan.stages, dropout=0.2)

    def run():
        engine = made(plan, make)
        random = torch.get_rng_state()
        batch = rows_of(engine, text(0))
        losses = engine.evaluate(*batch), engine.evaluate(*[each[:2] for each in batch]), engine.evaluate(*batch)
        assert torch.equal(random, torch.get_rng_state()) and all(p.grad is None for p in engine.names)
        assert all(stage.training for stage in engine.stages.values())
        return losses

    with torch.no_grad():
        expected = make().eval().loss(*text(0)).item()
    first, *others = tinydist.launch(run, plan.ranks, observe=False).results
    assert first[0] == first[2] == pytest.approx(expected, abs=1e-5) and first[1] != first[0]
    assert all(each == first for each in others)


def test_tokens_are_read_on_first_stages_and_targets_on_last_ones():
    plan = Plan(pp=3, microbatches=2, max_norm=MAX_NORM)
    make = partial(model, 3)

    def run(sparing):
        engine = made(plan, make)
        tokens, targets = text(0)
        place = dist.get_rank()
        if sparing:
            tokens, targets = [(tokens, None), (torch.full_like(tokens, -1), None), (None, targets)][place]
        return engine.step(tokens, targets)

    assert tinydist.launch(run, 3, True, observe=False).results == tinydist.launch(run, 3, False, observe=False).results


def test_without_a_limit_the_norm_is_not_asked_for_and_with_an_infinite_one_nothing_is_clipped():
    def run(max_norm):
        engine = made(Plan(dp=2, max_norm=max_norm))
        steps = [engine.step(*rows_of(engine, text(step))) for step in range(2)]
        return [step.norm for step in steps], steps[1].loss

    (nothing, free), (norms, also_free), (_, clipped) = (
        tinydist.launch(run, 2, each, observe=False).results[0] for each in (None, float("inf"), 0.1)
    )
    assert nothing == [None, None] and norms[0] == pytest.approx(alone()[0][1], abs=1e-5)
    assert free == also_free != clipped


def test_the_learning_rate_of_a_step_is_that_of_all_its_parameters():
    def run():
        engine = made(Plan(pp=2))
        engine.step(*text(0), lr=0.25)
        return [group["lr"] for zero in engine.zero.values() for group in zero.optimizer.param_groups]

    assert tinydist.launch(run, 2, observe=False).results == [[0.25, 0.25]] * 2


# Real processes.

ON_FOUR = [
    Plan(1, 2, 2, zero=3, microbatches=2, sequence_parallel="save", max_norm=MAX_NORM),
    Plan(2, 2, 1, zero=1, microbatches=3, recompute="full", max_norm=MAX_NORM),
]


def several():
    return [program(plan) for plan in ON_FOUR]


def test_four_processes_have_the_losses_of_four_simulated_ranks():
    simulated = tinydist.launch(several, 4, observe=False).results
    for found in tinydist.launch(several, 4, backend="gloo", timeout=120).results:
        for ours, theirs in zip(found, simulated[0], strict=True):
            assert max(distance(ours, theirs)) <= 1e-5


SCRIPT = """
import sys
sys.path[:0] = [{tests!r}]
import tinydist
from training.test_engine import ON_FOUR
from training.trained import program

run = tinydist.launch(program, 4, ON_FOUR[0])
sys.stdout.write(f"{{run.backend}}: {{run.results[0]}}\\n")
"""


@pytest.mark.exhaustive
def test_under_torchrun_too(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent.parent)))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", script]
    done = subprocess.run(torchrun, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.split(": ") for line in done.stdout.splitlines() if ": [" in line]
    assert [backend for backend, _ in said] == ["nccl" if torch.cuda.is_available() else "gloo"] * 4
    simulated = tinydist.launch(program, 4, ON_FOUR[0], observe=False).results[0]
    for _, losses in said:
        assert max(distance(eval(losses), simulated)) <= 1e-5
