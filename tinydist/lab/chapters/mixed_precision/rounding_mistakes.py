"""What a wrong rounding to bf16 may come from: by what was rounded, words for a mistake and what it gives."""

import torch

UPPER = -(1 << 16)  # the mask, as an int32


def same(a, b):
    """Bit for bit; one NaN is as good as another."""
    return (a.view(torch.int32) == b.view(torch.int32)) | (a.isnan() & b.isnan())


def bits(x):
    return x.view(torch.int32)


def nearest(x):
    return x.bfloat16().float()


def unchanged(x):
    return x


def cut(x):
    return (bits(x) & UPPER).view(torch.float32)


def after_adding(number):
    return lambda x: ((bits(x) + number) & UPPER).view(torch.float32)


def without_care(x):
    return ((bits(x) + 0x7FFF + (bits(x) >> 16 & 1)) & UPPER).view(torch.float32)


def mantissa_of_10(x):
    return ((bits(x) + 0xFFF + (bits(x) >> 13 & 1)) & -(1 << 13)).view(torch.float32)


def flushed(x):
    return torch.where(x.abs() < torch.finfo(torch.float32).tiny, x * 0.0, nearest(x))


def flushed_to_plus_zero(x):
    return torch.where(x.abs() < torch.finfo(torch.float32).tiny, 0.0, nearest(x))


def flushed_results(x):
    return torch.where(nearest(x).abs() < torch.finfo(torch.float32).tiny, nearest(x) * 0.0, nearest(x))


def ties_to_odd(x):
    return ((bits(x) + 0x7FFF + 1 - (bits(x) >> 16 & 1)) & UPPER).view(torch.float32)


def largest_of_fp32(x):
    largest = torch.finfo(torch.float32).max
    return nearest(x).clamp(-largest, largest)


def unsigned_infinity(x):
    return torch.where(nearest(x).isinf(), torch.inf, nearest(x))


def unsigned_largest(x):
    return torch.where(nearest(x).isinf(), torch.finfo(torch.bfloat16).max, nearest(x))


def no_number(x):
    return torch.where(nearest(x).isinf(), torch.nan, nearest(x))


def left_alone(x):
    return torch.where(nearest(x).isinf(), x, nearest(x))


def unsigned_zeros(x):
    return nearest(x) + 0.0


def at_most_the_largest(x):
    largest = torch.finfo(torch.bfloat16).max
    return nearest(x).clamp(-largest, largest)


def infinite(x):
    return torch.where(x.isnan(), torch.tensor(torch.inf).copysign(x), nearest(x))


MISTAKES = {
    "numbers that are no ties": {
        "nothing was rounded: x came back": unchanged,
        "the lower half was cut off: that rounds towards zero. Above the middle, the neighbor above is closer": cut,
        "all goes up that has anything in its lower half": after_adding(0xFFFF),
        "13 bits were cut off, and 10 of the mantissa are left, as in fp16. bf16 has 7: cut off 16": mantissa_of_10,
    },
    "numbers that are ties": {
        "ties go away from zero: half was added whatever the upper half is. From an even one a tie goes down": (
            after_adding(0x8000)
        ),
        "ties go towards zero: less than half was added. From an odd upper half a tie goes up": after_adding(0x7FFF),
        "ties go to the odd neighbor, the wrong way round: one more is added if the last bit that stays is 1": (
            ties_to_odd
        ),
    },
    "subnormals and zeros": {
        "subnormals became zero. They are bits as all others: the same addition rounds them": flushed,
        "subnormals became zero, without their sign. They are bits as all others: the same addition rounds them": (
            flushed_to_plus_zero
        ),
        "results that are subnormal became zero. bf16 has subnormals as fp32 has": flushed_results,
        "zeros lost their sign: -0 is a number of its own": unsigned_zeros,
    },
    "numbers near the largest": {
        "what is too large became the largest number. The carry leads to inf by itself: let it": at_most_the_largest,
        "what is too large became the largest number, without its sign. The carry leads to inf by itself: let it": (
            unsigned_largest
        ),
        "what is too large became the largest number of fp32, which bf16 does not have. Right is inf": largest_of_fp32,
        "what is too large became inf without its sign": unsigned_infinity,
        "what is too large became NaN. The carry leads to inf by itself: let it": no_number,
        "what is too large came back as it was, not rounded. The carry leads to inf by itself: let it": left_alone,
    },
    "inf and NaN": {
        "NaN was rounded like a number: that carried it to zero, or cut it down to inf. Keep NaNs apart": without_care,
        "the lower half of a NaN was cut off, and with nothing in the upper half of its mantissa it is inf": cut,
        "NaN became inf. NaN says that a result is meaningless; keep it": infinite,
    },
}
