"""Floating-point formats: a sign, an exponent and a mantissa, each with its number of bits.

              sign  exponent  mantissa
    fp32      s     eeeeeeee  mmmmmmmmmmmmmmmmmmmmmmm
    tf32      s     eeeeeeee  mmmmmmmmmm                 the range of fp32, the steps of fp16; held in 4 bytes
    bf16      s     eeeeeeee  mmmmmmm                    the upper half of fp32
    fp16      s     eeeee     mmmmmmmmmm
    fp8 e5m2  s     eeeee     mm                         the upper half of fp16
    fp8 e4m3  s     eeee      mmm                        no infinity: its bits are numbers, up to 448
    fp4 e2m1  s     ee        m                          no infinity and no NaN: up to 6

The number is (-1)^sign 2^(exponent - bias) 1.mantissa, with bias = 2^(exponent bits - 1) - 1. Exponent 0 has no
leading 1: the subnormals, evenly spaced down to zero. Exponent bits set how far numbers reach, mantissa bits how far
apart they are: from 1 to the next is epsilon = 2^-(mantissa bits).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ..rules import number, one_of, stated, validate, within

SPECIALS = ("inf and nan", "nan", "none")


@validate(name=str, exponent_bits=within(0, 11), mantissa_bits=within(0, 52), dtype=torch.dtype, nbytes=within(1, 8))
@dataclass(frozen=True)
class Format:
    """``specials``: what the highest bit patterns mean.

    - ``"inf and nan"``: the highest exponent is no number, as in IEEE 754;
    - ``"nan"``: only the highest pattern is no number, but NaN;
    - ``"none"``: every pattern is a number.

    What is too large becomes infinity, or where there is none the largest number, as in torch from 2.12 on.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    specials: str = "inf and nan"
    dtype: torch.dtype | None = None  # torch's, where it has one
    nbytes: int | None = None  # of memory that a number takes; None: as many as its bits fill
    source: str = ""

    def __post_init__(self):
        if not one_of(SPECIALS)(self.specials):
            raise ValueError(f"format {self.name!r}: specials must be one of {SPECIALS}, got {self.specials!r}")
        if self.exponent_bits < 2 or self.mantissa_bits < 1:
            raise ValueError(
                f"format {self.name!r} needs 2 or more exponent bits and 1 or more mantissa bits, "
                f"got {self.exponent_bits} and {self.mantissa_bits}"
            )
        if self.nbytes is None:
            object.__setattr__(self, "nbytes", math.ceil(self.bits / 8))

    def __str__(self):
        return self.name

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        return 2 ** (self.exponent_bits - 1) - 1

    @property
    def lowest_exponent(self) -> int:
        """Of normal numbers, and of the subnormals too."""
        return 1 - self.bias

    @property
    def largest(self) -> float:
        if self.specials == "inf and nan":
            return 2.0**self.bias * (2 - self.epsilon)
        return 2.0 ** (self.bias + 1) * (2 - self.epsilon * (2 if self.specials == "nan" else 1))

    @property
    def smallest_normal(self) -> float:
        return 2.0**self.lowest_exponent

    @property
    def smallest_subnormal(self) -> float:
        return 2.0 ** (self.lowest_exponent - self.mantissa_bits)

    @property
    def epsilon(self) -> float:
        """From 1 to the next number."""
        return 2.0**-self.mantissa_bits

    @property
    def overflow(self) -> float:
        """What a positive number becomes that is too large."""
        return math.inf if self.specials == "inf and nan" else self.largest


IEEE = "IEEE 754-2019, table 3.5"
FP8 = "Micikevicius et al. 2022, FP8 Formats for Deep Learning, section 3"
MX = "OCP Microscaling Formats (MX) Specification v1.0, 2023, section 5.3.3"

FORMATS = {
    each.name: each
    for each in [
        Format("fp32", 8, 23, dtype=torch.float32, source=IEEE),
        Format("tf32", 8, 10, nbytes=4, source="NVIDIA A100 Tensor Core GPU Architecture, 2020"),
        Format("bf16", 8, 7, dtype=torch.bfloat16, source="Kalamkar et al. 2019, A Study of BFLOAT16, section 2"),
        Format("fp16", 5, 10, dtype=torch.float16, source=IEEE),
        Format("fp8 e4m3", 4, 3, "nan", torch.float8_e4m3fn, source=FP8),
        Format("fp8 e5m2", 5, 2, dtype=torch.float8_e5m2, source=FP8),
        Format("fp4 e2m1", 2, 1, "none", source=MX),
    ]
}


def find_format(which) -> Format:
    """By name ("bf16"), by torch's dtype, or a ``Format`` itself."""
    if isinstance(which, Format):
        return which
    for each in FORMATS.values():
        if which in (each.name, each.dtype) and which is not None:
            return each
    raise ValueError(f"unknown format {which!r}; available: {', '.join(map(repr, FORMATS))}, and the dtypes of torch")


class Bits(NamedTuple):
    """A number as it stands in memory, and what number that is."""

    sign: str
    exponent: str
    mantissa: str
    value: float

    def __str__(self):
        return f"{self.sign} {self.exponent} {self.mantissa}"


@validate(number=number)
def encode_bits(number, format) -> Bits:
    """The bits of ``number``, rounded to the nearest of the format, ties to the even mantissa."""
    format = find_format(format)
    sign, magnitude = math.copysign(1, number) < 0, _pattern(abs(float(number)), format)
    digits = f"{magnitude:0{format.bits - 1}b}"
    exponent, mantissa = digits[: format.exponent_bits], digits[format.exponent_bits :]
    return Bits(str(int(sign)), exponent, mantissa, decode_bits(str(int(sign)), exponent, mantissa, format))


def _pattern(magnitude, format) -> int:
    """Exponent and mantissa as one whole number. These count the numbers from 0 up, so rounding up may just carry."""
    normal = 1 << format.mantissa_bits  # the first pattern that is
    highest = (1 << format.bits - 1) - 1
    infinity = highest + 1 - normal
    if math.isnan(magnitude):
        if format.specials == "none":
            raise ValueError(f"{format} has no NaN")
        return highest if format.specials == "nan" else infinity + normal // 2
    ceiling = {"inf and nan": infinity, "nan": highest - 1, "none": highest}[format.specials]
    if magnitude > 2 * format.largest:  # infinity too
        return ceiling
    exponent = math.frexp(max(magnitude, format.smallest_normal))[1] - 1
    steps = round(math.ldexp(magnitude, format.mantissa_bits - exponent))  # ties to even
    return min((exponent - format.lowest_exponent) * normal + steps, ceiling)


digits = stated("a string of 0 and 1", lambda value: isinstance(value, str) and set(value) <= {"0", "1"})


@validate(sign=digits, exponent=digits, mantissa=digits)
def decode_bits(sign, exponent, mantissa, format) -> float:
    """What number these bits are; each a string of 0 and 1, as long as the format has it."""
    format = find_format(format)
    lengths = len(sign), len(exponent), len(mantissa)
    if lengths != (1, format.exponent_bits, format.mantissa_bits):
        given = " + ".join(map(str, lengths))
        raise ValueError(f"{format} has 1 + {format.exponent_bits} + {format.mantissa_bits} bits, got {given}")
    e, m = int(exponent, 2), int(mantissa, 2)
    highest = "0" not in exponent
    if highest and format.specials == "inf and nan":
        magnitude = math.nan if m else math.inf
    elif highest and format.specials == "nan" and "0" not in mantissa:
        magnitude = math.nan
    else:
        steps = m + (2**format.mantissa_bits if e else 0)
        magnitude = math.ldexp(steps, max(e, 1) - format.bias - format.mantissa_bits)
    return -magnitude if sign == "1" else magnitude
