"""Backward of the queries alone: a program for each tile of them, which goes over its keys as forward does.

With it, and ``backward_kernel`` without dq, no two programs add to one place: seven products instead of five, but the
same result in each run (``torch.use_deterministic_algorithms``).
"""

import triton
import triton.language as tl

from .tiles import divided_up, keys_of, load_tile, place_of, product, store_tile


@triton.jit
def queries_kernel(q, k, v, dout, lse, delta, dq, bounds_q, bounds_k, sequences, past, H, T, S, longest, scale,
                   scale2, nearest, farthest, d: tl.constexpr, e: tl.constexpr, R: tl.constexpr, right: tl.constexpr,
                   left: tl.constexpr, D: tl.constexpr, E: tl.constexpr, M: tl.constexpr, N: tl.constexpr):  # fmt: skip
    all_queries, tiles = T, divided_up(longest, M)
    tile, h, b, first_q, first_k, T, S, offset = place_of(tiles, H, bounds_q, bounds_k, sequences, past, T, S)
    if right:
        tile = tiles - 1 - tile
    top = tile * M
    if top < T:
        begin, bare, edge, end, first, last = keys_of(top, M, N, S, offset, nearest, farthest, right, left)
        at_q, at_k = (b, h, first_q), (b, h // R, first_k)
        rows = top + tl.arange(0, M)
        numbers = (b.to(tl.int64) * H + h) * all_queries + first_q + rows
        negative = -tl.load(lse + numbers, mask=rows < T, other=float("inf"))
        given = (
            load_tile(q, at_q, top, T, M, d, D),
            load_tile(dout, at_q, top, T, M, e, E),
            negative,
            tl.load(delta + numbers, mask=rows < T, other=0.0),
        )
        dqueries = tl.zeros([M, D], tl.float32)
        if left:
            dqueries = sweep(dqueries, given, k, v, at_k, begin, bare, S, first, last, scale2, d, e, D, E, N)
        dqueries = sweep(dqueries, given, k, v, at_k, bare, edge, None, None, None, scale2, d, e, D, E, N)
        dqueries = sweep(dqueries, given, k, v, at_k, edge, end, S, first, last, scale2, d, e, D, E, N)
        store_tile(dq, at_q, top, T, M, d, D, dqueries * scale)


@triton.jit
def sweep(dqueries, given, k, v, at, begin, end, S, first, last, scale2, d: tl.constexpr, e: tl.constexpr,
          D: tl.constexpr, E: tl.constexpr, N: tl.constexpr):  # fmt: skip
    queries, douts, negative, delta = given
    for start in tl.range(begin, end, N, num_stages=None if last is None else 1):
        keys, values = load_tile(k, at, start, S, N, d, D), load_tile(v, at, start, S, N, e, E)
        scores = product(queries, keys.T)
        if last is not None:
            columns = start + tl.arange(0, N)[None, :]
            seen = columns <= last[:, None]
            if first is not None:
                seen &= columns >= first[:, None]
            scores = tl.where(seen, scores, float("-inf"))
        weights = tl.exp2(tl.fma(scores, scale2, negative[:, None]))
        dscores = weights * (product(douts, values.T) - delta[:, None])
        dqueries = product(dscores.to(keys.dtype), keys, dqueries)
    return dqueries
