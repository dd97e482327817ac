"""What predictions are tried on: weights of a format, and updates about as large as the spacing there."""

import math

import torch

from tinydist.precision import Format, find_format

FORMATS = [find_format(name) for name in ("fp16", "bf16", "fp8 e5m2", "fp8 e4m3")] + [Format("5 + 4 bits", 5, 4)]
ODD = 6_000_011  # and no multiple of 3
SIGNS = torch.tensor([1.0, -1.0]).repeat(40)

# What weights are, as mantissas (whole numbers) and exponents; and updates, in units of the spacing at the weight.


def between(f, mantissas, exponents, chance):
    return mantissas, exponents, SIGNS * uneven(torch.cat([0.02 + 1.5 * chance[:40], 0.45 + 0.1 * chance[40:]]))


def powers(f, mantissas, exponents, chance):
    return SIGNS.sort()[0].long() * 2**f.mantissa_bits, exponents, SIGNS * uneven(0.02 + 0.6 * chance)


def half_way(f, mantissas, exponents, chance):
    """At once, or after several updates."""
    upper = torch.full_like(mantissas, 2**f.mantissa_bits)
    ratios = torch.cat([SIGNS / 2, -(1 + (SIGNS < 0)) / 4, SIGNS / 8])
    return torch.cat([mantissas, upper, mantissas]), exponents.repeat(3), ratios


def subnormals(f, mantissas, exponents, chance):
    mantissas = (chance.flip(0) * (2**f.mantissa_bits + 1)).long()
    mantissas[:4], mantissas[4:8] = 0, 2**f.mantissa_bits
    return mantissas, torch.full_like(exponents, f.lowest_exponent), SIGNS * uneven(0.02 + chance)


def vanishing(f, mantissas, exponents, chance):
    """Half of the updates are ODD or ODD/2 times smaller than the spacing. None adds up to a tie."""
    tiny = (1 + 2 * chance[:40]).floor().double() / ODD
    ratios = torch.cat([tiny, uneven(0.45 + 0.1 * chance[40:])])
    return mantissas, exponents.clamp(min=-60), SIGNS * ratios  # further down, fp32 itself has no room


def uneven(ratios):
    """None makes a tie, also if several are added."""
    return (ratios * 1021).round().clamp(min=1) / 1021


KINDS = {
    "weights between powers of two": between,
    "weights that are powers of two": powers,
    "updates of exactly half way": half_way,
    "weights below the smallest normal number": subnormals,
    "updates that take millions of steps: compute how many, do not count up": vanishing,
}


def sample(make, f):
    generator = torch.Generator().manual_seed(f.bits)
    exponents = torch.randint(f.lowest_exponent + 1, math.frexp(f.largest)[1] - 2, SIGNS.shape, generator=generator)
    mantissas = torch.randint(2**f.mantissa_bits + 1, 2 ** (f.mantissa_bits + 1), SIGNS.shape, generator=generator)
    mantissas, exponents, ratios = make(f, mantissas, exponents, torch.rand(SIGNS.shape, generator=generator))
    spacing = 2.0 ** (exponents - f.mantissa_bits).double()
    return (mantissas * spacing).float(), (ratios * spacing).float(), f
