"""Forward kernel: one program per head and tile of queries loops over the keys once.

Powers are of 2, which is what the hardware has, and the scale goes into them: of each score
2^(score scale log2 e - maximum) takes one fused multiplication and addition, and one power.

``lse`` is a logarithm to base 2. Of queries that see nothing it is infinite: their weights in backward are zeros.

Source: Dao 2023, FlashAttention-2, algorithm 1 and section 3.
"""

import triton
import triton.language as tl

from .tiles import divided_up, keys_of, load_tile, place_of, product, scores_of, store_tile

LOWEST = tl.constexpr(-3.4e38)  # so that -inf is not subtracted from -inf


@triton.jit(do_not_specialize=["S"])  # of a single key it would be a kernel of its own, at which ptxas 12.8 crashes
def forward_kernel(q, k, v, out, lse, bounds_q, bounds_k, sequences, offsets, H, T, S, longest, scale2, nearest,
                   farthest, d: tl.constexpr, e: tl.constexpr, R: tl.constexpr, right: tl.constexpr,
                   left: tl.constexpr, D: tl.constexpr, E: tl.constexpr, M: tl.constexpr,
                   N: tl.constexpr):  # fmt: skip
    """Views or descriptors q [B, H, T, d], k, v [B, H / R, S, e], out; a pointer to lse [B, H, T].

    right, left:  the band has such an edge, at ``nearest`` and ``farthest`` (see ``AttentionMask``).
    D, E:         d and e, padded.
    """
    all_queries, tiles = T, divided_up(longest, M)
    tile, h, b, first_q, first_k, T, S, offset = place_of(tiles, H, bounds_q, bounds_k, sequences, offsets, T, S)
    if right:
        tile = tiles - 1 - tile  # who has the most keys begins
    top = tile * M
    if top < T:
        begin, bare, edge, end, first, last = keys_of(top, M, N, S, offset, nearest, farthest, right, left)
        at_q, at_k = (b, h, first_q), (b, h // R, first_k)
        queries = load_tile(q, at_q, top, T, M, d, D)
        state = tl.full([M], float("-inf"), tl.float32), tl.zeros([M], tl.float32), tl.zeros([M, E], tl.float32)
        if left:
            state = sweep(state, queries, k, v, at_k, begin, bare, S, first, last, scale2, d, e, D, E, N)
        state = sweep(state, queries, k, v, at_k, bare, edge, None, None, None, scale2, d, e, D, E, N)
        state = sweep(state, queries, k, v, at_k, edge, end, S, first, last, scale2, d, e, D, E, N)

        maximum, total, output = state
        blind = total == 0
        total = tl.where(blind, 1.0, total)
        rows = top + tl.arange(0, M)
        at = lse + (b.to(tl.int64) * H + h) * all_queries + first_q + rows
        store_tile(out, at_q, top, T, M, e, E, output / total[:, None])
        tl.store(at, tl.where(blind, float("inf"), maximum + tl.log2(total)), mask=rows < T)


@triton.jit
def sweep(state, queries, k, v, at, begin, end, S, first, last, scale2, d: tl.constexpr, e: tl.constexpr,
          D: tl.constexpr, E: tl.constexpr, N: tl.constexpr):  # fmt: skip
    """Online softmax over the keys from ``begin`` to ``end``, masked where there is a ``last``."""
    maximum, total, output = state
    for start in tl.range(begin, end, N, num_stages=None if last is None else 1):
        scores = scores_of(queries, load_tile(k, at, start, S, N, d, D), start, first, last, N)
        higher = tl.maximum(maximum, tl.max(scores, 1) * scale2)
        finite = higher if last is None else tl.maximum(higher, LOWEST)
        weights, shrink = tl.exp2(tl.fma(scores, scale2, -finite[:, None])), tl.exp2(maximum - finite)
        values = load_tile(v, at, start, S, N, e, E)
        total = total * shrink + tl.sum(weights, 1)
        output = product(weights.to(values.dtype), values, output * shrink[:, None])
        maximum = higher
    return maximum, total, output
