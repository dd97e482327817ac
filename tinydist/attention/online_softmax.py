r"""Online softmax: attention over blocks of keys, without holding all scores at once.

    keys    0 .. 63      64 .. 127      128 .. 191
              |              |              |
            part           part           part          each with its own maximum m, sum l, unfinished output o
               \          /                /
                merge ---> .              /             the one with the smaller maximum is scaled down
                            \            /
                             merge ---> . ---> finish   o / l, and m + log l

A part is an unnormalized softmax-weighted mean: l = sum of exp(score - m), o = sum of exp(score - m) value. Two parts
over different keys merge into the part over both, in any order, and the result is exact: rescaling by
exp(m of the part - m of both) corrects for the maximum that was not known yet.

A part has O(d) elements per query, however many keys it covers.

Sources: Milakov & Gimelshein 2018, Online normalizer calculation for softmax, section 3; Dao 2023, FlashAttention-2,
section 3.1.1 (o is divided once, at the end; log-sum-exp is all that backward needs).
"""

import math
from typing import NamedTuple

import torch


class SoftmaxState(NamedTuple):
    """Partial result of each query over some of the keys: maximum, sum, unnormalized output."""

    maximum: torch.Tensor  # [..., T, 1] of the scores; -inf: none was seen
    total: torch.Tensor  # [..., T, 1] sum of exp(score - maximum)
    output: torch.Tensor  # [..., T, e] sum of exp(score - maximum) value


def nothing(rows, dim):
    """The part over no keys, for queries as in ``rows`` [..., T, d]: merged with another, it changes nothing."""
    zeros = torch.zeros_like(rows[..., :1])
    return SoftmaxState(zeros - math.inf, zeros, zeros.expand(*rows.shape[:-1], dim))


def part(scores, values):
    """The part over these keys: scores [..., T, S], values [..., S, e]. Masked scores are -inf."""
    maximum = scores.amax(-1, keepdim=True)
    weights = (scores - _finite(maximum)).exp()
    return SoftmaxState(maximum, weights.sum(-1, keepdim=True), weights @ values)


def merge(a, b):
    """The part over the keys of both."""
    maximum = torch.maximum(a.maximum, b.maximum)
    of_a, of_b = ((each.maximum - _finite(maximum)).exp() for each in (a, b))
    return SoftmaxState(maximum, of_a * a.total + of_b * b.total, of_a * a.output + of_b * b.output)


def finish(state):
    """The output [..., T, e] and the log-sum-exp of the scores [..., T, 1]: 0 and -inf for a query that saw nothing."""
    return state.output / state.total.clamp(min=1), state.maximum + state.total.log()


def _finite(maximum):
    """-inf - -inf is NaN; -inf minus the lowest number is -inf, and exp of that 0."""
    return maximum.clamp(min=torch.finfo(maximum.dtype).min)
