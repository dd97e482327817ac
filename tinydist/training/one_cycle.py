"""1Cycle: the learning rate goes up and comes down once, and momentum goes the other way.

    rate       peak/start -> peak -> peak/(start x end)
    momentum   most -> least -> most                        of SGD; of Adam it is betas[0]
                |  rise  |      the rest      |

Both legs by half a cosine wave, or straight. The rate is high in the middle of training, where it also regularizes, and
at the end far below where it began; a lower momentum allows a higher rate. Torch's OneCycleLR has these defaults;
DeepSpeed's OneCycle (compat/ds_schedules.py) is straight, and has a third leg.

Sources: Smith 2018, A disciplined approach to neural network hyper-parameters, section 4; Smith and Topin 2017,
Super-convergence.
"""

import math

from ..rules import count, one_of, part, positive, validate


def half_wave(start, end, gone):
    return end + (start - end) / 2.0 * (math.cos(math.pi * gone) + 1)


def straight(start, end, gone):
    return (end - start) * gone + start


LEGS = {"cos": half_wave, "linear": straight}


@validate(peak=positive, steps=count, rise=part, start=positive, end=positive, shape=one_of(LEGS))
def one_cycle(peak, steps, rise=0.3, start=25.0, end=1e4, shape="cos"):
    """step -> rate. ``rise``: which part of the steps goes up."""
    if min(start, end) < 1:
        raise ValueError(f"one_cycle: start and end divide the peak, so they must be >= 1, got {start} and {end}")
    first = peak / start
    return legs("one_cycle", steps, rise, shape, first, peak, first / end)


@validate(steps=count, most=part, least=part, rise=part, shape=one_of(LEGS))
def one_cycle_momentum(steps, most=0.95, least=0.85, rise=0.3, shape="cos"):
    """step -> momentum."""
    if least > most:
        raise ValueError(f"one_cycle_momentum: least ({least}) must be <= most ({most})")
    return legs("one_cycle_momentum", steps, rise, shape, most, least, most)


def legs(name, steps, rise, shape, first, middle, last):
    top, leg = float(rise * steps) - 1, LEGS[shape]
    if not 0 < top < steps - 1:
        raise ValueError(f"{name}: rise x steps = {rise} x {steps} must be > 1, and < steps")

    def value(step):
        if step <= top:
            return leg(first, middle, step / top)
        return leg(middle, last, min((step - top) / (steps - 1 - top), 1.0))

    return value
