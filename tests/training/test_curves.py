"""Every plan for 8 ranks: the losses and the norms of one process, on real text."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from training.trained import MAX_NORM, alone, deep, distance, on_ranks

from tinydist.training import Plan
from tinydist.training.plan import RECOMPUTED

MESHES = [(pp, 8 // (pp * tp), tp) for pp, tp in product((1, 2, 4, 8), repeat=2) if pp * tp <= 8]  # pp, dp, tp


def plans():
    """All that is different: one rank needs no schedule, nor has it tokens to share."""
    for (pp, dp, tp), zero, recompute in product(MESHES, range(4), RECOMPUTED):
        schedules = [("gpipe", 1), ("1f1b", 1)] + [("interleaved", 2), ("bfs", 2)] * (pp < 8)
        sequences = [None, "kept", "again", "ring"]
        copies = [None, *[each for each in (2, 4) if zero and each < dp]]
        for (schedule, chunks), sequence, replicate in product(
            schedules if pp > 1 else schedules[1:2], sequences if tp > 1 else sequences[:1], copies
        ):
            how = dict(schedule=schedule, chunks=chunks, sequence=sequence, recompute=recompute, replicate=replicate)
            yield Plan(pp, dp, tp, zero, microbatches=2, max_norm=MAX_NORM, **how)


def name(plan):
    parts = [f"{plan.pp}x{plan.dp}x{plan.tp}", f"zero{plan.zero}", plan.schedule, plan.sequence, plan.recompute]
    parts += [f"replicate{plan.replicate}"] if plan.replicate else []
    return "-".join(filter(None, parts))


ALL = {name(plan): plan for plan in plans()}
SAMPLED = [
    "1x8x1-zero1-1f1b-none-replicate2",
    "2x2x2-zero0-1f1b-kept-selective",
    "2x2x2-zero3-interleaved-again-full",
    "2x4x1-zero2-gpipe-none-replicate2",
    "4x1x2-zero1-bfs-ring-none",
]


def sampled(which):
    return [pytest.param(each, marks=[] if each in which else pytest.mark.exhaustive) for each in ALL]


def layers(plan):
    """One more than stages: the first has one more than the others."""
    return plan.stages + 1


@pytest.mark.parametrize("each", sampled(SAMPLED))
def test_a_plan_gives_the_curve_of_one_process(each):
    plan = ALL[each]
    found = on_ranks(plan, deep(layers(plan)))
    assert max(distance(found, alone(layers(plan)))) <= 1e-5


@pytest.mark.parametrize("each", sampled(SAMPLED[1:3]))
def test_in_bf16_it_is_at_most_twice_as_far_from_fp32_as_one_process_is(each):
    """The largest difference of a loss, and of a norm, over the steps."""
    plan = replace(ALL[each], precision="bf16")
    expected, one = alone(layers(plan)), alone(layers(plan), dtype=torch.bfloat16)
    for far, at_most in zip(distance(on_ranks(plan, deep(layers(plan))), expected), distance(one, expected)):
        assert far <= 2 * at_most
