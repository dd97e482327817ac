"""DeepSpeed's learning rates: numbers that it gave, and itself where it is installed."""

import itertools
import math

import pytest
import torch

from tinydist.training.compat.ds_schedules import SCHEDULES

LR, STEPS = 0.3, 60
ONE_CYCLE = dict(cycle_min_lr=0.1, cycle_max_lr=1.1, cycle_first_step_size=5, cycle_second_step_size=10)
# After so many steps of the scheduler, DeepSpeed 0.19.8 had these rates: name, parameters, step -> rate.
PUBLISHED = [
    (
        "WarmupLR",
        dict(warmup_max_lr=1.0),
        {0: 0.0, 1: 0.0, 2: 0.1003, 10: 0.3333, 31: 0.4971, 32: 0.5017, 100: 0.6667, 500: 0.8997, 1000: 1.0},
    ),
    (
        "WarmupDecayLR",
        dict(warmup_max_lr=1.0, warmup_num_steps=4, total_num_steps=20, warmup_type="linear"),
        dict(enumerate([0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 0.9375, 0.875, 0.8125, 0.75])),
    ),
    (
        "OneCycle",
        dict(**ONE_CYCLE, decay_step_size=2, decay_lr_rate=0.5),
        {0: 0.1, 1: 0.3, 2: 0.5, 3: 0.7, 4: 0.9, 5: 1.1, 6: 1.0, 15: 0.1, 16: 0.08, 17: 0.0667, 18: 0.0571, 19: 0.05},
    ),
    ("LRRangeTest", dict(lr_range_test_step_size=5), {0: 0.001, 5: 0.002, 10: 0.003}),
]


@pytest.mark.parametrize("name, parameters, rates", PUBLISHED)
def test_the_rates_are_those_that_deepspeed_gave(name, parameters, rates):
    course = SCHEDULES[name](LR, **parameters)
    assert {step: round(course.rate(step), 4) for step in rates} == rates


def test_a_cosine_is_a_part_of_the_optimizers_rate():
    course = SCHEDULES["WarmupCosineLR"](LR, total_num_steps=20, warmup_num_steps=4, cos_min_ratio=0.1)
    half = LR * (0.1 + 0.9 * (1 + math.cos(math.pi * 8 / 16)) / 2)
    assert [course.rate(step) for step in (0, 12, 20, 99)] == pytest.approx([0.0, half, 0.1 * LR, 0.1 * LR])


def test_one_cycle_moves_the_first_beta_against_the_rate():
    course = SCHEDULES["OneCycle"](LR, **ONE_CYCLE)
    assert [course.momentum(step) for step in (0, 5, 15)] == pytest.approx([0.8, 0.8, 0.9])
    assert SCHEDULES["OneCycle"](LR, **ONE_CYCLE, cycle_momentum=False).momentum(3) is None


def variants():
    for kind, steps in itertools.product(("log", "linear"), (1, 2, 7, 30)):
        warmup = dict(warmup_type=kind, warmup_num_steps=steps)
        yield "WarmupLR", warmup
        yield "WarmupLR", warmup | dict(warmup_min_lr=1e-5, warmup_max_lr=0.17)
        for total in (5, 40, 100):
            yield "WarmupDecayLR", warmup | dict(total_num_steps=total)
            yield "WarmupCosineLR", warmup | dict(total_num_steps=total, warmup_min_ratio=0.1, cos_min_ratio=0.2)
    for first, second, decay, rate, stairs, moves in itertools.product(
        (3, 10), (None, 0, 7), (0, 2), (0.0, 0.5), (0, 2), (True, False)
    ):
        sizes = dict(cycle_first_step_size=first, cycle_second_step_size=second, cycle_first_stair_count=stairs)
        after = dict(decay_step_size=decay, decay_lr_rate=rate, decay_mom_rate=rate / 10, cycle_momentum=moves)
        yield "OneCycle", dict(cycle_min_lr=0.1, cycle_max_lr=1.1, **sizes, **after)
    yield "LRRangeTest", dict(lr_range_test_step_size=5)
    yield "LRRangeTest", dict(lr_range_test_step_size=5, lr_range_test_staircase=True)


def test_rates_and_betas_are_deepspeeds_to_the_last_digit():
    theirs = pytest.importorskip("deepspeed.runtime.lr_schedules")
    for name, parameters in variants():
        optimizer = torch.optim.AdamW([torch.zeros(1)], lr=LR)
        scheduler, ours = getattr(theirs, name)(optimizer, **parameters), SCHEDULES[name](LR, **parameters)
        for step in range(STEPS):
            (group,), momentum = optimizer.param_groups, ours.momentum(step)
            betas = (0.9, 0.999) if momentum is None else (momentum, 0.99)
            assert (group["lr"], group["betas"]) == (ours.rate(step), betas), (name, parameters, step)
            scheduler.step()
