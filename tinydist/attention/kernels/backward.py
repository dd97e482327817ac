"""Backward: a program for each tile of keys and key head, which goes over all queries that see it.

    s^T = k q^T     w^T = 2^(s^T scale log2 e - lse)     dv += w^T dout
    dw^T = v dout^T     ds^T = w^T (dw^T - delta)        dk += ds^T q        dq += ds k, in memory

Five products a tile, as in ``flash_backward``. Scores are computed as keys x queries, so that both sums of the program take
them as they are. All tiles of keys add to dq: atomically, hence in any order, and in float32.

delta, the sum of dout out, has a kernel of its own, for both are read once.

Source: Dao 2023, FlashAttention-2, algorithm 2.
"""

import triton
import triton.language as tl

from .tiles import add_tile, load_tile, place_of, product, seen, store_tile


@triton.jit
def delta_kernel(out, dout, delta, H, T, e: tl.constexpr, E: tl.constexpr, M: tl.constexpr):
    tile, h, b, _, _, _, _ = place_of(tl.cdiv(T, M), H, None, None, 1, T, T)
    rows = tile * M + tl.arange(0, M)
    outs, douts = load_tile(out, (b, h, 0), tile * M, T, M, e, E), load_tile(dout, (b, h, 0), tile * M, T, M, e, E)
    sums = tl.sum(outs.to(tl.float32) * douts.to(tl.float32), 1)
    tl.store(delta + (b.to(tl.int64) * H + h) * T + rows, sums, mask=rows < T)


@triton.jit
def backward_kernel(q, k, v, dout, lse, delta, dq, dk, dv, bounds_q, bounds_k, sequences, H, T, S, longest, scale,
                    scale2, nearest, farthest, d: tl.constexpr, e: tl.constexpr, R: tl.constexpr,
                    right: tl.constexpr, left: tl.constexpr, D: tl.constexpr, E: tl.constexpr, M: tl.constexpr,
                    N: tl.constexpr):  # fmt: skip
    lse_length, tiles = T, tl.cdiv(longest, N)
    tile, g, b, first_q, first_k, T, S = place_of(tiles, H, bounds_q, bounds_k, sequences, T, S)
    top = tile * N
    if top < S:
        begin, bare, edge, end = 0, 0, T, T
        if right:
            begin = tl.maximum(0, top + nearest + T - S) // M * M
            bare = tl.cdiv(tl.maximum(0, top + N - 1 + nearest + T - S), M) * M
        if left:
            end = tl.maximum(0, tl.minimum(T, top + N + farthest + T - S))
            edge = tl.maximum(0, tl.minimum(T, top + 1 + farthest + T - S)) // M * M
        if top + N > S:
            bare = end
        bare = tl.minimum(bare, end)
        edge = tl.maximum(edge, bare)

        columns = top + tl.arange(0, N)
        at_k = b, g, first_k
        keys, values = load_tile(k, at_k, top, S, N, d, D), load_tile(v, at_k, top, S, N, e, E)
        state = tl.zeros([N, D], tl.float32), tl.zeros([N, E], tl.float32)
        for h in range(g * R, (g + 1) * R):
            at_q = b, h, first_q
            of_head = (b.to(tl.int64) * H * R + h) * lse_length + first_q
            state = sweep(state, keys, values, q, dout, lse + of_head, delta + of_head, dq, at_q, begin, bare,
                          T, columns + T - S, S + T - S, scale2, nearest, farthest, d, e, right, left, D, E, M, True)
            state = sweep(state, keys, values, q, dout, lse + of_head, delta + of_head, dq, at_q, bare, edge,
                          T, columns + T - S, S + T - S, scale2, nearest, farthest, d, e, right, left, D, E, M, False)
            if left:
                state = sweep(state, keys, values, q, dout, lse + of_head, delta + of_head, dq, at_q, edge, end,
                              T, columns + T - S, S + T - S, scale2, nearest, farthest, d, e, right, left, D, E, M, True)
        dkeys, dvalues = state
        store_tile(dk, at_k, top, S, N, d, D, dkeys * scale)
        store_tile(dv, at_k, top, S, N, e, E, dvalues)


@triton.jit
def sweep(state, keys, values, q, dout, lse, delta, dq, at, begin, end, T, columns, S, scale2, nearest, farthest,
          d: tl.constexpr, e: tl.constexpr, right: tl.constexpr, left: tl.constexpr, D: tl.constexpr,
          E: tl.constexpr, M: tl.constexpr, masked: tl.constexpr):  # fmt: skip
    dkeys, dvalues = state
    for start in range(begin, end, M):
        rows = start + tl.arange(0, M)
        queries = load_tile(q, at, start, T, M, d, D)
        scores = product(keys, queries.T)
        if masked:
            visible = seen(rows[None, :] - columns[:, None], columns[:, None], S, nearest, farthest, right, left)
            scores = tl.where(visible, scores, float("-inf"))
        infinite = tl.load(lse + rows, mask=rows < T, other=float("inf"))  # no weight beyond the last query
        weights = tl.exp2(tl.fma(scores, scale2, -infinite[None, :]))
        douts = load_tile(dout, at, start, T, M, e, E)
        dvalues = product(weights.to(douts.dtype), douts, dvalues)
        dweights = product(values, douts.T)
        dscores = weights * (dweights - tl.load(delta + rows, mask=rows < T, other=0.0)[None, :])
        dscores = dscores.to(queries.dtype)
        dkeys = product(dscores, queries, dkeys)
        add_tile(dq, at, start, T, M, d, D, product(dscores.T, keys))
    return dkeys, dvalues
