"""A column of tiles: one tile of keys and values collects its gradients, as it should be and as mistakes make it."""

import math

import torch


def column(k, v, q, dout, lse, delta, start, tile, *, sees=None, scale=None, dscale=None, skip=(), **mistakes):
    """The gradients of keys and values at positions from ``start``, in float64.

    The rest are mistakes. sees: the mask; scale: of the scores, dscale: of the gradient of keys; skip: first queries of
    tiles that are not visited; local: softmax over this tile alone; transposed: is it not? last: nothing is added up;
    across: lse or delta, when it is taken by key; sign: of delta; product: what is multiplied by the weights, all of
    dscores, "dweights" alone, or nothing? subtracted: is lse? own: is delta that of this tile of keys alone?
    """
    k, v, q, dout, lse, delta = (each.double() for each in (k, v, q, dout, lse, delta))
    right, s = 1 / math.sqrt(q.shape[1]), len(k)
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    for first in range(start // tile * tile, len(q), tile):
        if first in skip:
            continue
        rows = slice(first, first + tile)
        p, j = torch.arange(first, min(first + tile, len(q)))[:, None], torch.arange(start, start + s)
        scores = q[rows] @ k.T * (right if scale is None else scale)
        scores = scores.masked_fill(~(j <= p if sees is None else sees(p, j)), -math.inf)
        by_query = {name: each[rows][:, None] for name, each in (("lse", lse), ("delta", delta))}
        if mistakes.get("across"):
            by_query[mistakes["across"]] = by_query[mistakes["across"]].T
        known = by_query["lse"] if mistakes.get("subtracted", True) else 0
        weights = scores.softmax(1) if mistakes.get("local") else (scores - known).exp()
        dweights = dout[rows] @ v.T
        delta_of = (weights * dweights).sum(1, keepdim=True) if mistakes.get("own") else by_query["delta"]
        of, inner = {"all": (weights, 1), "dweights": (1, weights), "nothing": (1, 1)}[mistakes.get("product", "all")]
        dscores = of * (inner * dweights - mistakes.get("sign", 1) * delta_of)
        of_k, of_v = (each if mistakes.get("transposed") else each.T for each in (dscores, weights))
        add_k, add_v = of_k @ q[rows] * (right if dscale is None else dscale), of_v @ dout[rows]
        dk, dv = (add_k, add_v) if mistakes.get("last") else (dk + add_k, dv + add_v)
    return dk.float(), dv.float()


def mistaken(k, v, q, dout, lse, delta, start, tile):
    """words -> (gradient of keys, gradient of values); without those whose shapes do not fit here."""
    d, begin, rest = q.shape[1], start // tile * tile, len(q) % tile
    root = math.sqrt(d)
    mistakes = {
        "delta is missing: the gradient of the scores is weights * (dweights - delta)": dict(sign=0),
        "delta is added, where it is to be subtracted": dict(sign=-1),
        "the weights are missing in the gradient of the scores, weights * (dweights - delta)": dict(product="nothing"),
        "delta is subtracted after the product, where it belongs inside: weights * (dweights - delta)": dict(
            product="dweights"
        ),
        "delta is summed over this tile of keys alone, where it is that of all keys: the one that is given": dict(
            own=True
        ),
        "lse is not subtracted: the weights are exp(scores - lse)": dict(subtracted=False),
        "dscores is not scaled: the scores are q k^T / sqrt(d), so dk needs the 1 / sqrt(d), too": dict(dscale=1.0),
        "dk is divided by d, where sqrt(d) is right: or scaled twice, where q or dscores has the factor already": dict(
            dscale=1 / d
        ),
        "the scores are not divided by sqrt(d) when they are computed again: lse is that of the scaled ones": dict(
            scale=1.0
        ),
        "the scores are divided by d, where sqrt(d) is right": dict(scale=1 / d),
        "the scores are multiplied by sqrt(d)": dict(scale=root),
        "the transpose is forgotten: a key collects from all queries of the tile, so the product is over the queries, "
        "weights^T dout and dscores^T q": dict(transposed=True),
        "the softmax is taken over this tile of keys alone. The total is that of all keys: weights are "
        "exp(scores - lse)": dict(local=True),
        "the mask counts queries from their tile's own first: query i of the tile stands at first + i": dict(
            sees=lambda p, j: j <= p - p[0]
        ),
        "the mask counts keys from the tile's own first: key i of the tile stands at start + i": dict(
            sees=lambda p, j: j - start <= p
        ),
        "the mask counts queries and keys from their tiles' own first: they stand at first + i and start + i": dict(
            sees=lambda p, j: j - start <= p - p[0]
        ),
        "the mask is forgotten: queries before a key do not see it": dict(sees=lambda p, j: p >= 0),
        "the mask is off by one: a query sees itself": dict(sees=lambda p, j: j < p),
        "the mask is off by one: a query does not see the key after itself": dict(sees=lambda p, j: j <= p + 1),
        "the mask is the wrong way round: key j is seen by queries from j on": dict(sees=lambda p, j: j >= p),
        "lse goes by key, where it goes by query: as [t, 1] it is subtracted from each row": dict(across="lse"),
        "delta goes by key, where it goes by query: as [t, 1] it is subtracted from each row": dict(across="delta"),
        "only the last tile of queries is there: add them up": dict(last=True),
        "the first tile of queries that sees these keys is not visited": dict(skip=(begin,)),
        "a last tile of queries that is short is left out": dict(skip=(len(q) - rest,) if rest else ()),
    }
    found = {}
    for words, mistake in mistakes.items():
        try:
            found[words] = column(k, v, q, dout, lse, delta, start, tile, **mistake)
        except RuntimeError:
            continue
    return found
