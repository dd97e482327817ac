"""DeepSpeed's learning-rate schedulers, bit for bit, as functions of the number of steps applied.

    WarmupLR         up, by the logarithm of the step (half of the way is done at sqrt(N) of N steps) or straight; stays
    WarmupDecayLR    up; straight down to 0
    WarmupCosineLR   up; half a wave down, as parts of the optimizer's rate
    OneCycle         straight up, straight down, then as 1/step; betas[0] goes the other way meanwhile
    LRRangeTest      up, until training breaks: that is how a peak is found

A scheduler steps after the optimizer: its value number i is that of step i + 1, and step 0 has what its constructor
sets, the least. So a warm-up by logarithm begins with two steps at the least. A step that overflows counts for nothing.
Source: DeepSpeed, runtime/lr_schedules.py.
"""

import math
from typing import NamedTuple

from ...rules import amount, count, flag, number, one_of, part, positive, whole

PARAMETERS = {
    "warmup_min_lr": amount,
    "warmup_max_lr": amount,
    "warmup_num_steps": count,
    "warmup_type": one_of(("log", "linear")),
    "warmup_min_ratio": part,
    "cos_min_ratio": part,
    "total_num_steps": count,
    "cycle_min_lr": amount,
    "cycle_max_lr": amount,
    "decay_lr_rate": amount,
    "cycle_first_step_size": count,
    "cycle_second_step_size": whole,
    "cycle_first_stair_count": whole,
    "cycle_second_stair_count": whole,
    "decay_step_size": whole,
    "cycle_momentum": flag,
    "cycle_min_mom": part,
    "cycle_max_mom": part,
    "decay_mom_rate": number,
    "lr_range_test_min_lr": positive,
    "lr_range_test_step_size": count,
    "lr_range_test_step_rate": amount,
    "lr_range_test_staircase": flag,
}


def no_momentum(step):
    return None


class Course(NamedTuple):
    """What a scheduler sets before each step."""

    first: float  # the rate of step 0
    after: object  # i -> that of step i + 1
    momentum: object = no_momentum  # step -> betas[0], or None: as it is

    def rate(self, step):
        return self.after(step - 1) if step else self.first


def rising(steps, kind):
    """i -> which part of the way up is gone, before step N."""
    if kind == "linear":
        return lambda i: i / steps
    inverse = 1.0 / math.log(steps)
    return lambda i: inverse * math.log(i + 1)


def warmed_up(lr, least, peak, steps, kind, then):
    peak, steps = lr if peak is None else peak, max(2, steps)
    up, height = rising(steps, kind), peak - least
    return Course(least, lambda i: least + height * (up(i) if i < steps else then(i, steps)))


def warmup(lr, warmup_min_lr=0.0, warmup_max_lr=None, warmup_num_steps=1000, warmup_type="log"):
    return warmed_up(lr, warmup_min_lr, warmup_max_lr, warmup_num_steps, warmup_type, lambda i, steps: 1.0)


def warmup_decay(lr, total_num_steps, warmup_min_lr=0.0, warmup_max_lr=0.001, warmup_num_steps=1000, warmup_type="log"):
    def then(i, steps):
        return max(0.0, float(total_num_steps - i) / float(max(1.0, total_num_steps - steps)))

    return warmed_up(lr, warmup_min_lr, warmup_max_lr, warmup_num_steps, warmup_type, then)


def warmup_cosine(
    lr, total_num_steps, warmup_min_ratio=0.0, warmup_num_steps=1000, cos_min_ratio=0.0001, warmup_type="log"
):
    steps = max(2, warmup_num_steps)
    up = rising(steps, warmup_type)

    def ratio(i):
        if i < steps:
            return warmup_min_ratio + up(i) * (1.0 - warmup_min_ratio)
        gone = min(1.0, (i - steps + 1) / max(1, total_num_steps - steps))
        return max(0.0, cos_min_ratio + (1.0 - cos_min_ratio) * ((1 + math.cos(math.pi * gone)) / 2))

    return Course(0.0, lambda i: lr * ratio(i))


def one_cycle(
    lr,
    cycle_min_lr,
    cycle_max_lr,
    decay_lr_rate=0.0,
    cycle_first_step_size=2000,
    cycle_second_step_size=None,
    cycle_first_stair_count=0,
    cycle_second_stair_count=None,
    decay_step_size=0,
    cycle_momentum=True,
    cycle_min_mom=0.8,
    cycle_max_mom=0.9,
    decay_mom_rate=0.0,
):
    up = float(cycle_first_step_size)
    down = up if cycle_second_step_size is None else float(cycle_second_step_size)
    stairs, falling = cycle_first_stair_count, cycle_second_stair_count
    height = in_cycle(up, down, stairs, stairs if falling is None else falling)

    def decay(i, rate):
        return 1 + rate * ((i - (up + down) + 1) / decay_step_size) if decay_step_size and rate else 1

    def after(i):
        if i < up + down:
            return cycle_min_lr + (cycle_max_lr - cycle_min_lr) * height(i)
        return cycle_min_lr / decay(i, decay_lr_rate)

    def momentum(step):
        i = step - 1
        if step == 0:
            return cycle_min_mom
        if i < up + down:
            return cycle_max_mom - (cycle_max_mom - cycle_min_mom) * height(i)
        return cycle_max_mom * decay(i, decay_mom_rate)

    return Course(cycle_min_lr, after, momentum if cycle_momentum else no_momentum)


def in_cycle(up, down, rising_stairs, falling_stairs):
    """i -> how high, from 0 to 1; in so many stairs, if there are any."""
    total = up + down
    peak = up / total

    def height(i):
        step = i + 1
        x = 1.0 + step / total - math.floor(1 + step / total)
        stairs = rising_stairs if x <= peak else falling_stairs
        if not stairs:
            return x / peak if x <= peak else (x - 1) / (peak - 1)
        place = step % total
        climbed = place * stairs / up if place <= up else (total - place) * stairs / down
        return math.floor(climbed) / stairs

    return height


def range_test(
    lr,
    lr_range_test_min_lr=1e-3,
    lr_range_test_step_size=2000,
    lr_range_test_step_rate=1.0,
    lr_range_test_staircase=False,
):
    def after(i):
        interval = float(i + 1) / lr_range_test_step_size
        return lr_range_test_min_lr * (
            1 + lr_range_test_step_rate * (math.floor(interval) if lr_range_test_staircase else interval)
        )

    return Course(lr_range_test_min_lr, after)


SCHEDULES = {
    "WarmupLR": warmup,
    "WarmupDecayLR": warmup_decay,
    "WarmupCosineLR": warmup_cosine,
    "OneCycle": one_cycle,
    "LRRangeTest": range_test,
}
