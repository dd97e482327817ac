"""A row of tiles: one tile of queries passes the keys, as it should be and as mistakes make it."""

import math

import torch


def causal(i, p, c, j):
    """Of queries i of their tile, at positions p, and keys c of theirs, at positions j."""
    return j <= p


def row(q, k, v, start, tile, *, sees=causal, scale=None, lse=None, until=None, **mistakes):
    """The output and the log-sum-exp of queries q [t, d] at positions from ``start``, in float64.

    The rest are mistakes. sees: the mask; scale: of the scores; lse: of maximum and total; until: the first position
    that is not visited; hidden: the score of a key that is not seen; total, output: are they rescaled? divided: is the
    output divided by total with each tile? finish: at the end?
    """
    hidden, divided = mistakes.get("hidden", -math.inf), mistakes.get("divided", False)
    q, k, v = q.double(), k.double(), v.double()
    i = torch.arange(len(q))[:, None]
    maximum, sums, out = (torch.full((len(q), n), x).double() for n, x in ((1, -math.inf), (1, 0.0), (v.shape[1], 0.0)))
    for first in range(0, min(len(k), start + len(q)) if until is None else until, tile):
        keys, values = k[first : first + tile], v[first : first + tile]
        c = torch.arange(len(keys))
        scores = q @ keys.T * (1 / math.sqrt(q.shape[1]) if scale is None else scale)
        scores = scores.masked_fill(~sees(i, i + start, c, c + first), hidden)
        before, maximum = maximum, torch.maximum(maximum, scores.amax(1, keepdim=True))
        weights, factor = (scores - maximum).exp(), (before - maximum).exp()
        sums = sums * (factor if mistakes.get("total", True) else 1) + weights.sum(1, keepdim=True)
        out = out * (factor if mistakes.get("output", True) else 1) + weights @ values
        out = out / sums if divided else out
    known = (maximum + sums.log() if lse is None else lse(maximum, sums)).squeeze(1)
    return (out / sums if mistakes.get("finish", True) else out).float(), known.float()


def everything(i, p, c, j):
    return torch.ones_like(p >= j)


def mistaken(q, k, v, start, tile):
    """words -> (output, log-sum-exp)."""
    d, visible = q.shape[1], min(len(k), start + len(q))
    mistakes = {
        "no key is masked, and a query sees what comes after it. Are start + i and first + c compared, the positions "
        "of both?": dict(sees=everything, until=len(k)),
        "the mask is off by one: a query does not see itself": dict(sees=lambda i, p, c, j: j < p),
        "the mask is off by one: a query sees the key after itself": dict(sees=lambda i, p, c, j: j <= p + 1),
        "the mask is the wrong way round: a query sees what comes after it": dict(
            sees=lambda i, p, c, j: j >= p, until=len(k)
        ),
        "the mask counts queries from the tile's own first: query i of the tile stands at start + i": dict(
            sees=lambda i, p, c, j: j <= i
        ),
        "the mask counts queries and keys from their tiles' own first: a tile below the diagonal needs no mask": dict(
            sees=lambda i, p, c, j: c <= i
        ),
        "hidden keys have a finite score, such as 0, and exp of it counts: it must be -inf": dict(hidden=0.0),
        "the scores are not divided by sqrt(d)": dict(scale=1.0),
        "the scores are divided by d, where sqrt(d) is right: or by that twice, in the queries and after the "
        "product": dict(scale=1 / d),
        "the scores are multiplied by sqrt(d)": dict(scale=math.sqrt(d)),
        "the rescaling is forgotten: when a tile brings a larger maximum, what was added up before counts from the "
        "old one. Multiply total and output by exp(old - new)": dict(total=False, output=False),
        "the output is not rescaled: when a tile brings a larger maximum, it counts from the old one, as total "
        "does": dict(output=False),
        "total is not rescaled: when a tile brings a larger maximum, it counts from the old one, as the output "
        "does": dict(total=False),
        "the output is not divided by total": dict(finish=False),
        "the output is divided by total with each tile, and added to as if it were not: divide once, at the end": dict(
            divided=True, finish=False
        ),
        "the output is divided by total with each tile, and at the end again: divide once, at the end": dict(
            divided=True
        ),
        "the last tile that the queries see is not visited: the tile whose first key is the last query's own position "
        "counts, too": dict(until=visible - 1),
        "the tile on the diagonal is not visited: the queries see some of it": dict(until=start),
        "a last tile that is short is left out": dict(until=min(visible, len(k) // tile * tile)),
        "the log-sum-exp lacks the maximum: the total counts from it, so it is maximum + log(total)": dict(
            lse=lambda m, total: total.log()
        ),
        "it is maximum + total, without the logarithm": dict(lse=lambda m, total: m + total),
        "it is the maximum alone: log(total) is missing": dict(lse=lambda m, total: m),
        "it is the total, no logarithm": dict(lse=lambda m, total: total),
        "it is the sum of all exponentials: take its logarithm": dict(lse=lambda m, total: m.exp() * total),
        "it is to the base 2: the backward pass takes exp of it": dict(lse=lambda m, total: m + total.log2()),
        "the sign of the maximum is wrong: it is maximum + log(total)": dict(lse=lambda m, total: total.log() - m),
    }
    return {words: row(q, k, v, start, tile, **mistake) for words, mistake in mistakes.items()}
