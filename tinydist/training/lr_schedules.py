"""Learning-rate schedules: each a function of the step alone, so that a run can resume anywhere.

    constant   stays
    linear     straight down, to `final`
    cosine     half a wave down (Loshchilov and Hutter 2017, SGDR, eq. 5)
    wsd        stays, then down in the last part of the steps (Hu et al. 2024, MiniCPM, section 4.2): straight, or by
               another of WSD_SHAPES, which are those of Megatron-LM's --lr-wsd-decay-style

Before each, W = `warmup_steps` of linear warmup: 1/(W+1), 2/(W+1) ... of the peak; step W has it. Steps start at 0.
"""

import math

from ..rules import amount, count, one_of, part, positive, validate, whole

WSD_SHAPES = {  # of the decay, which part is gone -> which part of the way is left
    "linear": lambda gone: 1.0 - gone,
    "cosine": lambda gone: 0.5 * (math.cos(math.pi * gone) + 1.0),
    "exponential": lambda gone: 2.0 * 0.5**gone - 1.0,
    "minus_sqrt": lambda gone: 1.0 - math.sqrt(gone),
}
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


@validate(**SIZES, decay=part, shape=one_of(WSD_SHAPES))
def wsd(peak, steps, warmup_steps=0, final=0.0, decay=0.1, shape="linear"):
    """``decay``: which part of all steps goes down."""
    left = WSD_SHAPES[shape]
    falling = min(decay * steps / (steps - warmup_steps), 1.0) if warmup_steps < steps else 1.0

    def at(gone):
        return final + (peak - final) * left(max(0.0, 1 - (1 - gone) / falling)) if falling else peak

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
