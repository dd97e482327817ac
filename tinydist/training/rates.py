"""Learning rates: each a function of the step alone, so that a run may stop and go on anywhere.

    constant   stays
    linear     straight down, to `final`
    cosine     half a wave down (Loshchilov and Hutter 2017, SGDR, eq. 5)
    wsd        stays, then straight down in the last part of the steps (Hu et al. 2024, MiniCPM, section 4.2)

Before each: `warmup` steps straight up, 1/(W+1), 2/(W+1) ... of the peak, which step W then has. Steps count from 0.
"""

import math

from ..rules import amount, count, part, positive, takes, whole

SIZES = dict(peak=positive, steps=count, warmup=whole, final=amount)


@takes(**SIZES)
def constant(peak, steps=None, warmup=0):
    return shaped("constant", peak, steps or warmup + 1, warmup, lambda gone: peak)


@takes(**SIZES)
def linear(peak, steps, warmup=0, final=0.0):
    return shaped("linear", peak, steps, warmup, lambda gone: peak + (final - peak) * gone)


@takes(**SIZES)
def cosine(peak, steps, warmup=0, final=0.0):
    def at(gone):
        return final + (peak - final) * (1 + math.cos(math.pi * gone)) / 2

    return shaped("cosine", peak, steps, warmup, at)


@takes(**SIZES, decay=part)
def wsd(peak, steps, warmup=0, final=0.0, decay=0.1):
    """``decay``: which part of all steps goes down."""
    falling = min(decay * steps / (steps - warmup), 1.0) if warmup < steps else 1.0

    def at(gone):
        return peak + (final - peak) * max(0.0, 1 - (1 - gone) / falling) if falling else peak

    return shaped("wsd", peak, steps, warmup, at)


def shaped(name, peak, steps, warmup, after):
    """``after``: from the part of the steps after warm-up that is gone, 0 to 1, to the rate."""
    if warmup >= steps:
        raise ValueError(f"{name}: warm-up must end before the last step, but warmup({warmup}) >= steps({steps})")

    def rate(step):
        if step < warmup:
            return peak * (step + 1) / (warmup + 1)
        return after(min((step - warmup) / (steps - warmup), 1.0))

    return rate


RATES = {"constant": constant, "linear": linear, "cosine": cosine, "wsd": wsd}
