"""Learning-rate schedules: each a function of the step alone, so that a run can resume anywhere.

    constant   stays
    linear     straight down, to `final`
    cosine     half a wave down (Loshchilov and Hutter 2017, SGDR, eq. 5)
    wsd        stays, then straight down in the last part of the steps (Hu et al. 2024, MiniCPM, section 4.2)

Before each, W = `warmup_steps` of linear warmup: 1/(W+1), 2/(W+1) ... of the peak; step W has it. Steps start at 0.
"""

import math

from ..rules import amount, count, part, positive, validate, whole

SIZES = dict(peak=positive, steps=count, warmup_steps=whole, final=amount)


@validate(**SIZES)
def constant(peak, steps=None, warmup_steps=0):
    return shaped("constant", peak, steps or warmup_steps + 1, warmup_steps, lambda gone: peak)


@validate(**SIZES)
def linear(peak, steps, warmup_steps=0, final=0.0):
    return shaped("linear", peak, steps, warmup_steps, lambda gone: peak + (final - peak) * gone)


@validate(**SIZES)
def cosine(peak, steps, warmup_steps=0, final=0.0):
    def at(gone):
        return final + (peak - final) * (1 + math.cos(math.pi * gone)) / 2

    return shaped("cosine", peak, steps, warmup_steps, at)


@validate(**SIZES, decay=part)
def wsd(peak, steps, warmup_steps=0, final=0.0, decay=0.1):
    """``decay``: which part of all steps goes down."""
    falling = min(decay * steps / (steps - warmup_steps), 1.0) if warmup_steps < steps else 1.0

    def at(gone):
        return peak + (final - peak) * max(0.0, 1 - (1 - gone) / falling) if falling else peak

    return shaped("wsd", peak, steps, warmup_steps, at)


def shaped(name, peak, steps, warmup_steps, after):
    """``after``: from the part of the steps after warmup that is gone, 0 to 1, to the rate."""
    if warmup_steps >= steps:
        raise ValueError(f"{name}: warmup_steps ({warmup_steps}) must be < steps ({steps})")

    def rate(step):
        if step < warmup_steps:
            return peak * (step + 1) / (warmup_steps + 1)
        return after(min((step - warmup_steps) / (steps - warmup_steps), 1.0))

    return rate


LR_SCHEDULES = {"constant": constant, "linear": linear, "cosine": cosine, "wsd": wsd}
