"""States of an online softmax over some keys: (maximum, total, output), as they are and as mistakes make them."""

import math

import torch

NAMES = ("maximum", "total", "output")


def state(scores, values):
    """Of scores [T, S] and values [S, e]; no key is seen where scores are -inf."""
    maximum = scores.amax(1, keepdim=True)
    weights = (scores - maximum.clamp(min=torch.finfo(scores.dtype).min)).exp()
    return maximum, weights.sum(1, keepdim=True), weights @ values


def mistaken(a, b):
    """name -> {words: what this mistake gives}."""
    (a_max, a_total, a_output), (b_max, b_total, b_output) = a, b
    maximum = torch.maximum(a_max, b_max)
    of_a, of_b = (a_max - maximum).exp(), (b_max - maximum).exp()
    factors = {
        "it is added as it is: each state counts from its own maximum. Bring both to the common one first, by "
        "exp(its maximum - the common one)": (1, 1),
        "only b is rescaled: where b has the larger maximum, it is a that needs it": (1, of_b),
        "only a is rescaled: where a has the larger maximum, it is b that needs it": (of_a, 1),
        "the factor is upside down: exp(its maximum - the common one), at most 1": (1 / of_a, 1 / of_b),
        "each state is scaled by the factor of the other": (of_b, of_a),
        "it is scaled by exp(its maximum), so that nothing is left of the common one: subtract that first": (
            a_max.exp(),
            b_max.exp(),
        ),
        "it is the mean of both. Sums of exponentials add up; the division by total comes once, at the end": (
            of_a / 2,
            of_b / 2,
        ),
        "it is the mean of both, as they are: rescale them, and add": (0.5, 0.5),
    }
    total = of_a * a_total + of_b * b_total
    weighted = {
        "outputs are weighted by their totals, as if they were divided already. They are sums: rescale and add": (
            of_a * a_total / total,
            of_b * b_total / total,
        ),
        "it is divided by total: the output of a state is still a sum, and others may be merged with it": (
            of_a / total,
            of_b / total,
        ),
    }
    return {
        "maximum": {"it is the smaller one": torch.minimum(a_max, b_max), "it is that of a": a_max, "of b": b_max},
        "total": {words: fa * a_total + fb * b_total for words, (fa, fb) in factors.items()},
        "output": {words: fa * a_output + fb * b_output for words, (fa, fb) in {**factors, **weighted}.items()},
    }


def scores_of(rows, keys, seed, lowest=0.0, spread=2.0):
    """Rows differ in which part has the larger maximum."""
    generator = torch.Generator().manual_seed(seed)
    return lowest + spread * torch.randn(rows, keys, generator=generator)


def values_of(keys, width, seed):
    return torch.randn(keys, width, generator=torch.Generator().manual_seed(100 + seed))


def hidden(scores, rows):
    """The same, with nothing to see in these rows."""
    scores = scores.clone()
    scores[rows] = -math.inf
    return scores
