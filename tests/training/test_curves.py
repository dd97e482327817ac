"""Every plan for 8 ranks: the losses and the norms of one process, on real text."""

from dataclasses import replace
from itertools import cycle, product

import pytest
import torch
from training.trained import MAX_NORM, alone, assert_equals_one_process, deep, distance, on_ranks

from tinydist.plan import RECOMPUTE, SEQUENCE_PARALLEL
from tinydist.training import Plan

MESHES = [(pp, 8 // (pp * tp), tp) for pp, tp in product((1, 2, 4, 8), repeat=2) if pp * tp <= 8]  # pp, dp, tp


def plans():
    """All that differ: a stage alone needs no schedule, a rank alone shares no tokens. Ways to do it come in turns."""
    ways, recomputed = cycle(SEQUENCE_PARALLEL), cycle(RECOMPUTE[1:])
    for (pp, dp, tp), zero in product(MESHES, range(4)):
        schedules = [("1f1b", 1), ("gpipe", 1), ("interleaved", 2), ("bfs", 2)][: 1 if pp == 1 else 2 if pp == 8 else 4]
        copies = [None, *[each for each in (2, 4) if zero and each < dp]]
        for (schedule, chunks), replicate, cut, again in product(schedules, copies, range(1 + (tp > 1)), range(2)):
            yield Plan(
                *(pp, dp, tp, zero, replicate),
                microbatches=2,
                schedule=schedule,
                chunks=chunks,
                sequence_parallel=next(ways) if cut else None,
                recompute=next(recomputed) if again else "none",
                max_norm=MAX_NORM,
            )


def name(plan):
    parts = [f"{plan.pp}x{plan.dp}x{plan.tp}", f"zero{plan.zero}", plan.schedule]
    parts += [plan.sequence_parallel, plan.recompute]
    parts += [f"replicate{plan.replicate}"] if plan.replicate else []
    return "-".join(filter(None, parts))


ALL = {name(plan): plan for plan in plans()}
SAMPLED = [
    "1x8x1-zero1-1f1b-none-replicate2",
    "2x2x2-zero0-1f1b-kept-none",
    "2x2x2-zero3-interleaved-ring-full",
    "2x4x1-zero2-gpipe-full-replicate2",
    "4x1x2-zero1-bfs-kept-none",
]


def sampled(which, of=ALL):
    return [pytest.param(each, marks=[] if each in which else pytest.mark.exhaustive) for each in of]


def model_for(plan):
    """One block more than stages: the first has one more than the others."""
    return deep(plan.stages + 1)


@pytest.mark.parametrize("each", sampled(SAMPLED))
def test_a_plan_gives_the_curve_of_one_process(each):
    assert_equals_one_process(ALL[each], model_for(ALL[each]))


ORDERED = [each for each, plan in ALL.items() if plan.schedule in ("1f1b", "interleaved") and plan.replicate is None]


@pytest.mark.parametrize("each", sampled(SAMPLED[1:2], ORDERED))
def test_in_bf16_it_is_at_most_twice_as_far_from_fp32_as_one_process_is(each):
    """The largest difference of a loss, and of a norm, over 6 steps: in the first few it is a matter of luck."""
    make = model_for(ALL[each])
    expected, one = alone(make, steps=6), alone(make, torch.bfloat16, steps=6)
    found = on_ranks(replace(ALL[each], precision="bf16"), make, steps=6)
    for far, at_most in zip(distance(found, expected), distance(one, expected)):
        assert far <= 2 * at_most
