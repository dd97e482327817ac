"""Block-sparse attention forward as a Triton kernel: ``flash_forward_triton``, whose loop visits the blocks of a list.

    row 2 of the layout   x . x x      begin, end = bounds[2], bounds[3]        columns[begin:end] = 0, 2, 3

A tile is a block of the layout. A list of blocks (CSR: bounds and columns) is all that a kernel for sparse attention
needs besides: FlexAttention's ``BlockMask`` is one. Absent blocks are neither loaded nor computed.

Forward alone: backward exists in torch, as ``sparse.block_sparse_attention``.

Needs Triton, and is imported by its name alone; on a CPU it runs in Triton's interpreter (see ``flash_triton``).
"""

import math

import torch
import triton
import triton.language as tl

from .flash_triton import LOWEST, load_tile, product, scores_of, store_tile


def sparse_forward_triton(q, k, v, layout, *, causal=False):
    """The output [B, H, T, d] and its log-sum-exp to base 2 [B, H, T] over the blocks of a layout [H or 1, n, n].

    q [B, H, T, d], k and v [B, G, T, d], contiguous; d and the block's size, T / n, powers of 2 from 16.
    """
    (B, H, T, d), G, n = q.shape, k.shape[1], layout.shape[1]
    out, lse = torch.empty_like(q), q.new_empty(B, H, T, dtype=torch.float32)
    counts = layout.sum(2, dtype=torch.int32).flatten()
    bounds = torch.cat((counts.new_zeros(1), counts.cumsum(0, dtype=torch.int32)))  # [layouts n + 1]
    columns = layout.nonzero()[:, 2].int()
    sizes = dict(H=H, T=T, n=n, scale=1 / math.sqrt(d), layouts=len(layout), R=H // G, D=d, causal=causal, M=T // n)
    with torch.cuda.device_of(q):
        sparse_kernel[n, B * H](q, k, v, out, lse, bounds, columns, **sizes)
    return out, lse


@triton.jit
def sparse_kernel(q, k, v, out, lse, bounds, columns, H, T, n, scale, layouts, R: tl.constexpr, D: tl.constexpr,
                  causal: tl.constexpr, M: tl.constexpr):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)  # b H + h; its key head is b G + h // R, R = H / G
    row = tl.program_id(0)
    bounds += (head % H % layouts) * n + row
    rows = row * M + tl.arange(0, M)
    queries = load_tile(q, head, rows, T, D)
    maximum = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    output = tl.zeros([M, D], tl.float32)
    for at in range(tl.load(bounds), tl.load(bounds + 1)):
        places = tl.load(columns + at) * M + tl.arange(0, M)
        keys, values = load_tile(k, head // R, places, T, D), load_tile(v, head // R, places, T, D)
        scores = scores_of(queries, keys, rows, places, T, T, scale, causal)
        higher = tl.maximum(maximum, tl.max(scores, 1))
        finite = tl.maximum(higher, LOWEST)
        weights, shrink = tl.exp2(scores - finite[:, None]), tl.exp2(maximum - finite)
        total = total * shrink + tl.sum(weights, 1)
        output = output * shrink[:, None] + product(weights.to(values.dtype), values)
        maximum = higher
    store_tile(out, head, rows, T, D, output / tl.maximum(total, 1.0)[:, None])
    tl.store(lse + head * T + rows, tl.maximum(maximum, LOWEST) + tl.log2(tl.maximum(total, 1.0)), mask=rows < T)
