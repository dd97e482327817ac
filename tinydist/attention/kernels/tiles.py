"""Tiles: which tile a program works on, how it is loaded and stored, and which of its scores are masked."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

# Triton's own functions too: they are if it was requested before they were imported
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret and not isinstance(tl.zeros, triton.JITFunction))


class View(NamedTuple):
    """A tensor [B, H, T, d] where it lies. Only the last dim must be contiguous."""

    pointer: Any
    of_batch: int
    of_head: int
    of_token: int


@triton.jit
def divided_up(length, size):
    return (length + size - 1) // size


@triton.jit
def place_of(tiles, heads, bounds_q, bounds_k, sequences, offsets, T, S):
    """Of this program: its tile, head, and row of the batch; where its sequence begins in queries and in keys, how many
    it has of both, and the key beside which its first query stands.

    Tiles come fastest: what runs at the same time reads the same keys, from the cache.
    """
    tile, rest = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    head, b = rest % heads, rest // heads
    first_q, first_k = 0, 0
    if bounds_q is not None:
        bounds_q, bounds_k, b = bounds_q + b % sequences, bounds_k + b % sequences, b // sequences
        first_q, first_k = tl.load(bounds_q), tl.load(bounds_k)
        T, S = tl.load(bounds_q + 1) - first_q, tl.load(bounds_k + 1) - first_k
    offset = S - T if offsets is None else tl.load(offsets + b)
    return tile, head, b, first_q, first_k, T, S, offset


@triton.jit
def keys_of(top, M: tl.constexpr, N: tl.constexpr, S, offset, nearest, farthest, right: tl.constexpr,
            left: tl.constexpr):  # fmt: skip
    """Which keys the queries from ``top`` on see: each from first to last (None: from 0); and together

        begin       bare                         edge       end
          |  masked   |  each query sees each key  |  masked  |

    in tiles of N. Masked are those that an edge of the band cuts, or the last key. Of long sequences that is little.
    """
    positions = top + offset + tl.arange(0, M)
    begin, bare, edge, end, first, last = 0, 0, S // N * N, S, None, tl.full([M], S - 1, tl.int32)
    if right:
        last = tl.minimum(last, positions - nearest)
        edge = tl.maximum(0, tl.minimum(S, top + offset - nearest + 1)) // N * N
        end = tl.maximum(0, tl.minimum(S, top + offset - nearest + M))
    if left:
        first = positions - farthest
        begin = tl.maximum(0, top + offset - farthest) // N * N
        bare = tl.minimum(end, divided_up(tl.maximum(0, top + offset - farthest + M - 1), N) * N)
        edge = tl.maximum(edge, bare)
    return begin, bare, edge, end, first, last


@triton.jit
def load_tile(x, at, start, stop, N: tl.constexpr, d: tl.constexpr, D: tl.constexpr):
    """[N, D], from token ``start`` of a sequence on. Zeros from ``stop`` on (None: so many are there), and from d.

    x:   a view; or a descriptor of it, with which a Hopper GPU's copy engine (TMA) needs one instruction for a tile.
    at:  row of the batch, head, first token of the sequence.
    """
    if isinstance(x, tl.tensor_descriptor):
        tile = x.load([at[0], at[1], at[2] + start, 0]).reshape(N, D)
    else:
        tile = tl.load(_pointers(x, at, start, N, D), mask=_inside(start, stop, N, d, D), other=0.0)
    return tile


@triton.jit
def store_tile(x, at, start, stop, N: tl.constexpr, d: tl.constexpr, D: tl.constexpr, values):
    mask = _inside(start, stop, N, d, D)
    tl.store(_pointers(x, at, start, N, D), values.to(x.pointer.dtype.element_ty), mask=mask)


@triton.jit
def add_tile(pointer, start, stop, N: tl.constexpr, d: tl.constexpr, D: tl.constexpr, values):
    """To rows [stop, d] that lie one after the other. Programs that add to the same ones do so in any order."""
    rows = _wide(start) * d + tl.arange(0, N)[:, None] * d
    tl.atomic_add(pointer + rows + tl.arange(0, D)[None, :], values, mask=_inside(start, stop, N, d, D), sem="relaxed")


@triton.jit
def _pointers(x, at, start, N: tl.constexpr, D: tl.constexpr):
    """64 bits for the tile, which may lie anywhere; 32 within it, the same in each round of a loop."""
    tile = x.pointer + _wide(at[0]) * x.of_batch + _wide(at[1]) * x.of_head + _wide(at[2] + start) * x.of_token
    return tile + tl.arange(0, N)[:, None] * x.of_token + tl.arange(0, D)[None, :]


@triton.jit
def _wide(index):
    return tl.full([], index, tl.int64)


@triton.jit
def _inside(start, stop, N: tl.constexpr, d: tl.constexpr, D: tl.constexpr):
    inside = tl.full([N, D], True, tl.int1)
    if d < D:
        inside &= (tl.arange(0, D) < d)[None, :]
    if stop is not None:
        inside &= (start + tl.arange(0, N) < stop)[:, None]
    return inside


@triton.jit
def product(a, b, total=None):
    """a b, accumulated into ``total`` in float32. The interpreter has no bfloat16 matmul: it upcasts first."""
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, total, input_precision="tf32x3")


@triton.jit
def scores_of(queries, keys, start, first, last, N: tl.constexpr):
    """[M, N], for keys from ``start`` on; if there is a ``last``, -inf before ``first`` (None: 0) and after it."""
    scores = product(queries, keys.T)
    if last is not None:
        columns = start + tl.arange(0, N)[None, :]
        seen = columns <= last[:, None]
        if first is not None:
            seen &= columns >= first[:, None]
        scores = tl.where(seen, scores, float("-inf"))
    return scores
