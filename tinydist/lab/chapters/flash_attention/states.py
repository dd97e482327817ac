"""Attention over some keys, finished: (output, log-sum-exp), as it is and as mistakes merge two of them."""

import math

import torch

NAMES = ("out", "lse")


def state(scores, values):
    """Of scores [T, S] and values [S, e]; no key is seen where scores are -inf."""
    return scores.softmax(1).nan_to_num() @ values, scores.logsumexp(1)


def mistaken(a, b):
    """name -> {words: what this mistake gives}."""
    (a_out, a_lse), (b_out, b_lse) = a, b
    maximum, lse = torch.maximum(a_lse, b_lse), torch.logaddexp(a_lse, b_lse)
    of_a, of_b = (a_lse - lse).exp(), (b_lse - lse).exp()
    weights = {
        "it is the sum of both, as they are: each was divided by its own total. Scale them by their parts of the "
        "common one first, exp(its lse - the common one)": (1, 1),
        "it is the mean of both, as if both had seen as much: weigh them by exp(its lse - the common one)": (0.5, 0.5),
        "only b is scaled: a has its part of the common total, too": (1, of_b),
        "only a is scaled: b has its part of the common total, too": (of_a, 1),
        "the factor is upside down: exp(its lse - the common one), at most 1": (1 / of_a, 1 / of_b),
        "each is scaled by the factor of the other": (of_b, of_a),
        "it is scaled by exp(its lse), from which the common one was not subtracted": (a_lse.exp(), b_lse.exp()),
        "the weights count from the larger lse, and add up to more than 1: the common one is above both": (
            (a_lse - maximum).exp(),
            (b_lse - maximum).exp(),
        ),
        "it is that of a, as if b had seen nothing": (1, 0),
        "it is that of b, as if a had seen nothing": (0, 1),
    }
    return {
        "out": {words: fa[..., None] * a_out + fb[..., None] * b_out for words, (fa, fb) in tensors(weights).items()},
        "lse": {
            "it is the larger one: exp of both are sums that add up": maximum,
            "it is that of a": a_lse,
            "it is that of b": b_lse,
            "it is the sum of two logarithms, which is that of the product: take exp, add, take the logarithm": a_lse
            + b_lse,
            "it is the sum of exponentials: take its logarithm": a_lse.exp() + b_lse.exp(),
            "it is that of the mean: the sums add up": lse - math.log(2),
            "the larger lse was subtracted before exp, and is not added again": lse - maximum,
        },
    }


def tensors(weights):
    return {words: tuple(map(torch.as_tensor, pair)) for words, pair in weights.items()}


def scores_of(rows, keys, seed, spread=2.0):
    """Rows differ in which part has the larger maximum."""
    return spread * torch.randn(rows, keys, generator=torch.Generator().manual_seed(seed))


def values_of(keys, width, seed):
    return torch.randn(keys, width, generator=torch.Generator().manual_seed(100 + seed))


def hidden(scores, rows):
    """The same, with nothing to see in these rows."""
    scores = scores.clone()
    scores[rows] = -math.inf
    return scores
