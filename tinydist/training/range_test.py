"""The learning-rate range test: one short run in which the rate grows from step to step, until training breaks.

    loss  ----___                 .
                 \\              /
                  \\___      ___/
        flat      steepest  least    it breaks       rate, on a log axis

What it reads are bounds: where the smoothed loss falls fastest, where it is least, where it breaks. A rate in
between is a candidate, and not the best one of a long run: the test is short, and each rate has the weights that the
lower ones left. Costs one run of ``steps`` steps.

Sources: Smith 2015, Cyclical learning rates, section 3.3; Smith 2018, section 4.1. DeepSpeed's LRRangeTest
(compat/ds_schedules.py) grows by multiples of the least; ``growing`` by the same factor in each step, as fast.ai does.
"""

import math
from itertools import pairwise
from typing import NamedTuple

from ..rules import count, each_of, number, part, positive, validate


@validate(least=positive, most=positive, steps=count)
def growing(least, most, steps):
    """step -> rate, from ``least`` at step 0 to ``most`` at the last one and after it."""
    if not least < most or steps < 2:
        raise ValueError(f"growing: least ({least}) must be < most ({most}), in 2 steps or more, got {steps}")
    return lambda step: least * (most / least) ** min(step / (steps - 1), 1.0)


@validate(losses=each_of(number), kept=part)
def smoothed(losses, kept=0.9):
    """The exponential moving average, corrected for its start. It lags behind by about ``kept / (1 - kept)`` steps."""
    average, found = 0.0, []
    for step, loss in enumerate(losses, 1):
        average = kept * average + (1 - kept) * loss
        found.append(average / (1 - kept**step) if kept < 1 else losses[0])
    return found


class Reading(NamedTuple):
    steepest: float  # the rate at which the smoothed loss falls fastest per step
    least: float  # at which it is least
    breaks: float  # first at which it is `factor` times the least, or not finite; inf if never


@validate(rates=each_of(positive), losses=each_of(number), factor=positive, kept=part)
def read_range_test(rates, losses, factor=1.5, kept=0.9):
    """A ``Reading`` of rates that grow by one factor, and the loss of each step before its update."""
    if not all(one < other for one, other in pairwise(rates)) or factor <= 1:
        raise ValueError(f"read_range_test: rates must increase, and factor ({factor}) must be > 1")
    if len(rates) != len(losses) or len(rates) < 3:
        raise ValueError(
            f"read_range_test: rates ({len(rates)}) and losses ({len(losses)}) must be as many, at least 3"
        )
    finite = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), len(losses))
    if finite < 3:
        raise ValueError(f"read_range_test: the loss of step {finite} is {losses[finite]}: begin with a lower rate")
    line = smoothed(losses[:finite], kept)
    lowest = min(range(finite), key=line.__getitem__)
    if line[lowest] < 0:
        raise ValueError(f"read_range_test: the loss must be >= 0 for a factor of it, got {line[lowest]:.3g}")
    falls = [line[i + 1] - line[i - 1] for i in range(1, max(2, min(lowest + 1, finite - 1)))]
    beyond = (i for i in range(lowest, finite) if line[i] > factor * line[lowest])
    broken = next(beyond, finite)
    breaks = rates[broken] if broken < len(rates) else math.inf
    return Reading(rates[1 + falls.index(min(falls))], rates[lowest], breaks)
