"""Backward kernel: one program per query head and tile of keys loops over the queries that attend to it.

    s^T = k q^T         w^T = 2^(s^T scale log2 e - lse)       dv += w^T dout
    dw^T = v dout^T     ds^T = w^T (dw^T - delta)              dk += ds^T q          dq += ds k, in memory

Five matmuls per tile, as in ``flash_backward``. Scores are computed transposed (keys x queries), the layout that dk
and dv accumulate. All tiles of keys add to dq atomically, in any order, in float32. Only tiles at the edge of a causal
mask, or with the last key, are masked; with a window all are.

delta, the sum of dout out, has a kernel of its own. With ``torch.use_deterministic_algorithms`` so has the gradient of
queries: one program per tile of queries loops over the keys, as in forward. No two programs then add to the same
address: seven matmuls instead of five.

Source: Dao 2023, FlashAttention-2, algorithm 2.
"""

import triton
import triton.language as tl

from .tiles import add_tile, divided_up, keys_of, load_tile, place_of, product, scores_of, store_tile


@triton.jit
def delta_kernel(out, dout, delta, H, T, e: tl.constexpr, E: tl.constexpr, M: tl.constexpr):
    tile, h, b, _, _, _, _, _ = place_of(divided_up(T, M), H, None, None, 1, None, T, T)
    rows = tile * M + tl.arange(0, M)
    outs, douts = load_tile(out, (b, h, 0), tile * M, T, M, e, E), load_tile(dout, (b, h, 0), tile * M, T, M, e, E)
    sums = tl.sum(outs.to(tl.float32) * douts.to(tl.float32), 1)
    tl.store(delta + (b.to(tl.int64) * H + h) * T + rows, sums, mask=rows < T)


@triton.jit
def backward_kernel(q, k, v, dout, lse, delta, dq, dk, dv, bounds_q, bounds_k, sequences, offsets, H, T, S, longest,
                    scale, scale2, nearest, farthest, d: tl.constexpr, e: tl.constexpr, R: tl.constexpr,
                    right: tl.constexpr, left: tl.constexpr, D: tl.constexpr, E: tl.constexpr, M: tl.constexpr,
                    N: tl.constexpr):  # fmt: skip
    """As ``forward_kernel``. Each query head has gradients of its keys, dk [B, H, S, d], dv [B, H, S, e].

    Pointers to lse, delta [B, H, T] and dq [B, H, T, d]: it is zero, and not scaled here; None: it is not wanted.
    """
    all_queries = T
    tiles = divided_up(longest, N)
    tile, h, b, first_q, first_k, T, S, offset = place_of(tiles, H, bounds_q, bounds_k, sequences, offsets, T, S)
    top = tile * N
    if top < S:
        columns = top + tl.arange(0, N)
        first = tl.where(columns < S, 0, T)  # the queries from first to last see a key
        begin, bare, end, last = 0, tl.where(top + N > S, T, 0), T, None
        if right:
            first = tl.maximum(first, columns - offset + nearest)
            begin = tl.maximum(0, top - offset + nearest) // M * M
            bare = tl.maximum(bare, divided_up(tl.maximum(0, top - offset + nearest + N - 1), M) * M)
        bare = tl.minimum(bare, T)
        if left:  # all tiles are masked: a third loop would spill registers
            last = columns - offset + farthest
            end = tl.maximum(0, tl.minimum(T, top - offset + farthest + N))
            bare = end

        at_q, at_k = (b, h, first_q), (b, h // R, first_k)
        numbers = (b.to(tl.int64) * H + h) * all_queries + first_q
        given = q, dout, lse + numbers, delta + numbers, None if dq is None else dq + numbers * d
        keys, values = load_tile(k, at_k, top, S, N, d, D), load_tile(v, at_k, top, S, N, e, E)
        state = tl.zeros([N, D], tl.float32), tl.zeros([N, E], tl.float32)
        state = sweep_queries(state, keys, values, given, at_q, begin, bare, T, first, last, scale2, d, e, D, E, M)
        if not left:
            state = sweep_queries(state, keys, values, given, at_q, bare, end, T, None, None, scale2, d, e, D, E, M)
        dkeys, dvalues = state
        store_tile(dk, (b, h, first_k), top, S, N, d, D, dkeys * scale)
        store_tile(dv, (b, h, first_k), top, S, N, e, E, dvalues)


@triton.jit
def sweep_queries(state, keys, values, given, at, begin, end, T, first, last, scale2, d: tl.constexpr, e: tl.constexpr,
          D: tl.constexpr, E: tl.constexpr, M: tl.constexpr):  # fmt: skip
    """The queries from ``begin`` to ``end``, masked where there is a ``first``."""
    dkeys, dvalues = state
    q, dout, lse, delta, dq = given
    for start in range(begin, end, M):
        rows = start + tl.arange(0, M)
        queries, douts = load_tile(q, at, start, T, M, d, D), load_tile(dout, at, start, T, M, e, E)
        scores = product(keys, queries.T)
        if first is not None:
            seen = rows[None, :] >= first[:, None]
            if last is not None:
                seen &= rows[None, :] <= last[:, None]
            scores = tl.where(seen, scores, float("-inf"))
        negative = -tl.load(lse + rows, mask=rows < T, other=float("inf"))  # beyond the last query, no weight
        weights = tl.exp2(tl.fma(scores, scale2, negative[None, :]))
        dvalues = product(weights.to(douts.dtype), douts, dvalues)
        dweights = product(values, douts.T)
        dscores = weights * (dweights - tl.load(delta + rows, mask=rows < T, other=0.0)[None, :])
        dscores = dscores.to(queries.dtype)
        dkeys = product(dscores, queries, dkeys)
        if dq is not None:
            add_tile(dq, start, T, M, d, D, product(dscores.T, keys))
    return dkeys, dvalues


@triton.jit
def queries_kernel(q, k, v, dout, lse, delta, dq, bounds_q, bounds_k, sequences, offsets, H, T, S, longest, scale,
                   scale2, nearest, farthest, d: tl.constexpr, e: tl.constexpr, R: tl.constexpr, right: tl.constexpr,
                   left: tl.constexpr, D: tl.constexpr, E: tl.constexpr, M: tl.constexpr, N: tl.constexpr):  # fmt: skip
    all_queries, tiles = T, divided_up(longest, M)
    tile, h, b, first_q, first_k, T, S, offset = place_of(tiles, H, bounds_q, bounds_k, sequences, offsets, T, S)
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
            dqueries = sweep_keys(dqueries, given, k, v, at_k, begin, bare, S, first, last, scale2, d, e, D, E, N)
        dqueries = sweep_keys(dqueries, given, k, v, at_k, bare, edge, None, None, None, scale2, d, e, D, E, N)
        dqueries = sweep_keys(dqueries, given, k, v, at_k, edge, end, S, first, last, scale2, d, e, D, E, N)
        store_tile(dq, at_q, top, T, M, d, D, dqueries * scale)


@triton.jit
def sweep_keys(dqueries, given, k, v, at, begin, end, S, first, last, scale2, d: tl.constexpr, e: tl.constexpr,
          D: tl.constexpr, E: tl.constexpr, N: tl.constexpr):  # fmt: skip
    queries, douts, negative, delta = given
    for start in tl.range(begin, end, N, num_stages=None if last is None else 1):
        keys, values = load_tile(k, at, start, S, N, d, D), load_tile(v, at, start, S, N, e, E)
        scores = scores_of(queries, keys, start, first, last, N)
        weights = tl.exp2(tl.fma(scores, scale2, negative[:, None]))
        dscores = weights * (product(douts, values.T) - delta[:, None])
        dqueries = product(dscores.to(keys.dtype), keys, dqueries)
    return dqueries
