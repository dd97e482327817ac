"""Forward: a program for each tile of queries and head, which goes over the keys once.

    columns     begin      bare        edge       end
                  | masked  |  bare     |  masked  |        masked: tiles that an edge of the band, or the last key, cuts
                                                            bare: each query of the tile sees each key, so nothing is
                                                            compared; of long sequences, nearly all tiles

Powers are of 2, which is what the hardware has, and the scale goes into them: 2^(score scale log2 e - maximum) is one
multiplication with addition and one power for each score. ``lse`` is a logarithm to base 2, and infinite for queries
that see nothing: backward's weights, 2^(score - lse), are zeros then.

Source: Dao 2023, FlashAttention-2, algorithm 1 and section 3.2.
"""

import triton
import triton.language as tl

from .tiles import load_tile, place_of, product, seen, store_tile

LOWEST = tl.constexpr(-3.4e38)  # so that -inf is not subtracted from -inf


@triton.jit
def forward_kernel(q, k, v, out, lse, bounds_q, bounds_k, sequences, H, T, S, longest, scale2, nearest, farthest,
                   d: tl.constexpr, e: tl.constexpr, R: tl.constexpr, right: tl.constexpr, left: tl.constexpr,
                   D: tl.constexpr, E: tl.constexpr, M: tl.constexpr, N: tl.constexpr):  # fmt: skip
    """lse [B, H, T]; R query heads read a key head; right, left: which edges the band has, ``nearest``, ``farthest``.

    Which queries and keys are there is told by T and S, or, where sequences are packed, by their bounds.
    """
    lse_length, tiles = T, tl.cdiv(longest, M)
    tile, h, b, first_q, first_k, T, S = place_of(tiles, H, bounds_q, bounds_k, sequences, T, S)
    if right:
        tile = tiles - 1 - tile  # the longest comes first
    top = tile * M
    if top < T:
        begin, edge, end, bare = 0, S // N * N, S, 0
        if right:
            end = tl.maximum(0, tl.minimum(S, top + M + S - T - nearest))
            edge = tl.maximum(0, tl.minimum(S, top + 1 + S - T - nearest)) // N * N
        if left:
            begin = tl.maximum(0, top + S - T - farthest) // N * N
            bare = tl.maximum(begin, tl.cdiv(tl.maximum(0, top + M - 1 + S - T - farthest), N) * N)
            edge = tl.maximum(edge, bare)
        rows = top + tl.arange(0, M)
        at_q, at_k = (b, h, first_q), (b, h // R, first_k)
        queries = load_tile(q, at_q, top, T, M, d, D)
        state = tl.full([M], float("-inf"), tl.float32), tl.zeros([M], tl.float32), tl.zeros([M, E], tl.float32)
        if left:
            state = sweep(state, queries, k, v, at_k, begin, tl.minimum(bare, end), rows + S - T, S, scale2,
                          nearest, farthest, d, e, right, left, D, E, N, True)  # fmt: skip
        state = sweep(state, queries, k, v, at_k, bare, edge, rows + S - T, S, scale2,
                      nearest, farthest, d, e, right, left, D, E, N, False)  # fmt: skip
        state = sweep(state, queries, k, v, at_k, edge, end, rows + S - T, S, scale2,
                      nearest, farthest, d, e, right, left, D, E, N, True)  # fmt: skip
        maximum, total, output = state
        blind = total == 0
        total = tl.where(blind, 1.0, total)
        store_tile(out, at_q, top, T, M, e, E, output / total[:, None])
        lse += (b.to(tl.int64) * H + h) * lse_length + first_q
        tl.store(lse + rows, tl.where(blind, float("inf"), maximum + tl.log2(total)), mask=rows < T)


@triton.jit
def sweep(state, queries, k, v, at, begin, end, positions, S, scale2, nearest, farthest, d: tl.constexpr,
          e: tl.constexpr, right: tl.constexpr, left: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
          N: tl.constexpr, masked: tl.constexpr):  # fmt: skip
    """Online softmax over the keys from ``begin`` to ``end``."""
    maximum, total, output = state
    for start in range(begin, end, N):
        keys = load_tile(k, at, start, S if masked else None, N, d, D)
        scores = product(queries, keys.T)
        if masked:
            columns = start + tl.arange(0, N)[None, :]
            visible = seen(positions[:, None] - columns, columns, S, nearest, farthest, right, left)
            scores = tl.where(visible, scores, float("-inf"))
        higher = tl.maximum(maximum, tl.max(scores, 1) * scale2)
        finite = tl.maximum(higher, LOWEST) if masked else higher
        weights, shrink = tl.exp2(tl.fma(scores, scale2, -finite[:, None])), tl.exp2(maximum - finite)
        total = total * shrink + tl.sum(weights, 1)
        values = load_tile(v, at, start, S if masked else None, N, e, E)
        output = product(weights.to(values.dtype), values, output * shrink[:, None])
        maximum = higher
    return maximum, total, output
