"""Rounding to a floating-point format: to nearest, or stochastic.

    --|---------|----x----|---------|--      numbers of the format, ``spacing`` apart
                      --->                   nearest: the closer one; in the middle, that with an even mantissa
                <---- --->                   stochastic: one or the other, the closer the likelier

    spacing = 2^(exponent of x - mantissa bits)         at least that of the subnormals

Nearest errs by spacing/2 at most, but always to the same side: an update smaller than that is lost every time.
Stochastic rounding errs by up to a spacing, and its expectation is x: small updates add up.

Sources: IEEE 754-2019, section 4.3 (nearest); Gupta et al. 2015, Deep Learning with Limited Numerical Precision,
section 3.1 (stochastic).
"""

import torch

from ..rules import one_of, validate
from .formats import find_format

MODES = ("nearest", "stochastic")
DOUBLE_BIAS, DOUBLE_MANTISSA = 1023, 52  # all is computed in float64, where every float32 is a normal number


@validate(x=torch.Tensor, generator=torch.Generator)
@torch.no_grad()
def round_to(x, format, mode="nearest", generator=None):
    """The values of ``format`` nearest to ``x``, as float32, of the shape of ``x``. No gradient passes.

    format:     a ``Format``, its name, or torch's dtype.
    mode:       "nearest" (ties to even), or "stochastic". What is beyond the largest number is rounded alike in both.
    generator:  of the stochastic mode; None is torch's own.

    Raises ``TypeError`` unless x is float32, ``ValueError`` for a format with more range or precision than float32,
    and for NaN in a format that has none.
    """
    format = find_format(format)
    _check(x, format, mode)
    wide = x.double()
    exponent = (wide.view(torch.int64) >> DOUBLE_MANTISSA & 0x7FF) - DOUBLE_BIAS
    spacing = _power_of_two(exponent.clamp(min=format.lowest_exponent) - format.mantissa_bits)
    steps = wide.abs() / spacing
    nearest = steps.round()  # ties to even
    if mode == "stochastic":
        chance = torch.rand(x.shape, generator=generator, dtype=torch.float64, device=x.device)
        down = steps.floor()
        nearest = torch.where(wide.abs() <= format.largest, down + (chance < steps - down), nearest)
    rounded = nearest * spacing
    rounded = torch.where(rounded > format.largest, format.overflow, rounded)
    return rounded.copysign(wide).float()


def _power_of_two(exponent):
    """2^exponent, exactly: a float64 with these exponent bits and an empty mantissa."""
    return (exponent + DOUBLE_BIAS << DOUBLE_MANTISSA).view(torch.float64)


def _check(x, format, mode):
    if not one_of(MODES)(mode):
        raise ValueError(f"round_to: mode must be 'nearest' or 'stochastic', got {mode!r}")
    if x.dtype != torch.float32:
        raise TypeError(f"round_to: input must be float32, got {x.dtype}")
    if format.exponent_bits > 8 or format.mantissa_bits > 23 or format.largest > torch.finfo(torch.float32).max:
        raise ValueError(
            f"round_to: {format} has {format.exponent_bits} exponent and {format.mantissa_bits} mantissa bits; "
            "the result is held in float32, which has 8 and 23"
        )
    if format.specials == "none" and x.isnan().any():
        raise ValueError(f"round_to: {format} has no NaN, but {int(x.isnan().sum())} elements are NaN")
