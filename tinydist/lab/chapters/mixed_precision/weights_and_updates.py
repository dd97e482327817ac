"""What predictions are tried on: weights of a format, and updates about as large as the spacing there."""

import math

import torch

from ....precision import FORMATS, Format

ALL = [FORMATS[name] for name in ("fp16", "bf16", "fp8 e5m2", "fp8 e4m3")] + [Format("5 + 4 bits", 5, 4)]
ODD = 6_000_011  # and no multiple of 3
SIGNS = torch.tensor([1.0, -1.0]).repeat(40)


def draw(format):
    """(exponents, mantissas as whole numbers from the lowest normal one, a random number each)."""
    generator = torch.Generator().manual_seed(format.bits)
    low, normal = format.lowest_exponent, 2**format.mantissa_bits
    exponents = torch.randint(low + 1, math.frexp(format.largest)[1] - 2, SIGNS.shape, generator=generator)
    mantissas = torch.randint(normal + 1, 2 * normal, SIGNS.shape, generator=generator)
    return exponents, mantissas, torch.rand(SIGNS.shape, generator=generator)


def ordinary(format):
    exponents, mantissas, chance = draw(format)
    weights, spacing = numbers(mantissas, exponents, format)
    return weights, SIGNS * spacing * uneven(torch.cat([0.02 + 1.5 * chance[:40], 0.45 + 0.1 * chance[40:]]))


def vanishing(format):
    """Half of the updates are millions of times smaller than the spacing: ODD or ODD/2. None adds up to a tie."""
    exponents, mantissas, chance = draw(format)
    weights, spacing = numbers(mantissas, exponents.clamp(min=-60), format)  # further down, fp32 itself has no room
    tiny = (1 + 2 * chance[:40]).floor().double() / ODD
    return weights, SIGNS * spacing * torch.cat([tiny, uneven(0.45 + 0.1 * chance[40:])])


def powers(format):
    exponents, mantissas, chance = draw(format)
    weights, spacing = numbers(torch.full_like(mantissas, 2**format.mantissa_bits), exponents, format)
    return weights * SIGNS.sort()[0], SIGNS * spacing * uneven(0.02 + 0.6 * chance)


def ties(format):
    exponents, mantissas, _ = draw(format)
    weights, spacing = numbers(mantissas, exponents, format)
    upper, apart = numbers(torch.full_like(mantissas, 2**format.mantissa_bits), exponents, format)
    return torch.cat([weights, upper]), torch.cat([SIGNS * spacing / 2, -apart / 4 * (1 + (SIGNS < 0))])


def small(format):
    exponents, _, chance = draw(format)
    normal = 2**format.mantissa_bits
    weights, spacing = numbers(
        (chance.flip(0) * (normal + 1)).long(), torch.full_like(exponents, format.lowest_exponent), format
    )
    weights[:4], weights[4:8] = 0, format.smallest_normal
    return weights, SIGNS * spacing * uneven(0.02 + chance)


def numbers(mantissas, exponents, format):
    spacing = 2.0 ** (exponents - format.mantissa_bits).double()
    return (mantissas * spacing).float(), spacing


def uneven(ratios):
    """Of update to spacing: none that makes a tie, also if several are added."""
    return (ratios * 1021).round().clamp(min=1) / 1021


KINDS = {
    "weights between powers of two": ordinary,
    "weights that are powers of two": powers,
    "updates of exactly half way": ties,
    "weights below the smallest normal number": small,
    "updates millions of times smaller than the spacing": vanishing,
}


def sample(make, format):
    weights, updates = make(format)
    return weights, updates.float(), format
