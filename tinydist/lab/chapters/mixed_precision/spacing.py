"""How far apart the numbers of a format are, and what a wrong prediction from that may come from."""

import torch


def spacing(weights, format, lowest=None):
    exponents = torch.frexp(weights.double().abs())[1] - 1
    exponents = torch.where(weights == 0, format.lowest_exponent, exponents)
    exponents = exponents.clamp(min=format.lowest_exponent if lowest is None else lowest)
    return 2.0 ** (exponents - format.mantissa_bits).double()


def gap(weights, updates, format):
    """To the next number, on the side of the update."""
    apart, magnitude = spacing(weights, format), weights.double().abs()
    a_power = (magnitude == apart * 2**format.mantissa_bits) & (magnitude > format.smallest_normal)
    return torch.where(a_power & (weights * updates < 0), apart / 2, apart)


def below(limit):
    return lambda w, u, f: u.double().abs() < limit(w, u, f)


def up_to(limit):
    return lambda w, u, f: u.double().abs() <= limit(w, u, f)


def below_zero_or(limit):
    return lambda w, u, f: u.double() < limit(w, u, f)


def half_gap(w, u, f):
    return gap(w, u, f) / 2


def half_gap_downwards(w, u, f):
    return gap(w.abs(), u, f) / 2


def swapped(w, u, f):
    size, half = u.double().abs(), half_gap(w, u, f)
    odd = (w.double().abs() / spacing(w, f)) % 2 == 1
    return (size < half) | (size == half) & odd


# By what the weights are: the words for a mistake, and the rule that it is.

MISTAKES = {
    "weights between powers of two": {
        "nothing is lost, you say": lambda w, u, f: torch.zeros_like(w, dtype=torch.bool),
        "everything is lost, you say": lambda w, u, f: torch.ones_like(w, dtype=torch.bool),
        "the sign of the update is ignored: a negative one is less than any spacing. It is |update| that counts": (
            below_zero_or(half_gap)
        ),
        "the update is compared with epsilon/2, which is half of the spacing at 1: at a weight it is "
        "2^(exponent of the weight - mantissa bits)": below(lambda w, u, f: f.epsilon / 2),
        "the update is compared with |weight| epsilon/2. The spacing does not grow evenly with the weight: it doubles "
        "at each power of two, and is the same in between": below(lambda w, u, f: w.double().abs() * f.epsilon / 2),
        "the update is compared with the whole spacing. The nearest number wins: more than half is enough": below(gap),
    },
    "weights that are powers of two": {
        "the update is compared with half of the spacing above the weight. Below a power of two numbers are twice as "
        "close, and some updates go that way": below(lambda w, u, f: spacing(w, f) / 2),
        "the sign of the weight is ignored: numbers are closer on the side of zero, and from a negative weight a "
        "positive update leads there": below(half_gap_downwards),
    },
    "updates of exactly half way": {
        "half way, all are lost, you say: a tie goes to the even mantissa, away from a weight whose own is odd": (
            up_to(half_gap)
        ),
        "half way, all are kept, you say: a tie goes to the even mantissa, and stays where that is the weight's": (
            below(half_gap)
        ),
        "ties the wrong way round: the even mantissa wins": swapped,
    },
    "weights below the smallest normal number": {
        "the spacing goes on to shrink below the smallest normal number. Subnormals are evenly spaced: the exponent "
        "stays at format.lowest_exponent": up_to(
            lambda w, u, f: torch.minimum(spacing(w, f, lowest=-1100), gap(w, u, f)) / 2
        ),
    },
}
