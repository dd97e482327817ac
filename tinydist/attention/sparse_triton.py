"""Block-sparse attention as Triton kernels: ``flash_forward_triton``, whose loop visits the blocks of a list; backward.

    row 2 of the layout   x . x x      begin, end = bounds[2], bounds[3]        columns[begin:end] = 0, 2, 3

A tile is a block of the layout. A list of blocks (CSR: bounds and columns) is all that a kernel for sparse attention
needs besides: FlexAttention's ``BlockMask`` is one. Absent blocks are neither loaded nor computed. In backward queries
go through the same list, and keys through that of the transposed layout, so no two programs add to one number:

    w = 2^(scores - lse)    ds = w (dout v^T - delta)    by rows dq = ds k    by columns dk = ds^T q, dv = w^T dout

Seven matmuls a block, where ``kernels/backward.py`` has five and adds dq in memory. Needs Triton, and is imported by
its name alone; on a CPU it runs in Triton's interpreter (see ``flash_triton``).
"""

import math

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

from .flash_triton import LOWEST, load_tile, product, scores_of, store_tile


class SparseAttentionTriton(torch.autograd.Function):
    """``apply(q, k, v, layout, causal)``: the output of ``sparse_forward_triton``, with gradients."""

    @staticmethod
    def forward(ctx, q, k, v, layout, causal=False):
        out, lse = sparse_forward_triton(q, k, v, layout, causal=causal)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.layout, ctx.causal = layout, causal
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        saved = *ctx.saved_tensors, dout.contiguous()
        return *sparse_backward_triton(*saved, ctx.layout, causal=ctx.causal), None, None


def sparse_forward_triton(q, k, v, layout, *, causal=False):
    """The output [B, H, T, d] and its log-sum-exp to base 2 [B, H, T] over the blocks of a layout [H or 1, n, n].

    q [B, H, T, d], k and v [B, G, T, d], contiguous; d and the block's size, T / n, powers of 2 from 16.
    """
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
    with torch.cuda.device_of(q):
        sparse_kernel[grid_of(q, layout)](q, k, v, out, lse, *blocks_of(layout), **sizes_of(q, k, layout, causal))
    return out, lse


def sparse_backward_triton(q, k, v, out, lse, dout, layout, *, causal=False):
    """The gradients of q, k and v, from what forward returned."""
    delta = (dout.float() * out).sum(-1)
    given, sizes = (q, k, v, dout, lse, delta), sizes_of(q, k, layout, causal)
    dq, (dk, dv) = torch.empty_like(q), torch.empty(2, *q.shape, dtype=torch.float32, device=q.device)
    with torch.cuda.device_of(q):
        queries_kernel[grid_of(q, layout)](*given, dq, *blocks_of(layout), **sizes)
        keys_kernel[grid_of(q, layout)](*given, dk, dv, *blocks_of(layout.mT), **sizes)
    dk, dv = (each.unflatten(1, (k.shape[1], -1)).sum(2).to(k.dtype) for each in (dk, dv))  # of a key's query heads
    return dq, dk, dv


def grid_of(q, layout):
    return layout.shape[1], q.shape[0] * q.shape[1]


def blocks_of(layout):
    """bounds [layouts n + 1] and columns, those of each row of each layout."""
    counts = layout.sum(2, dtype=torch.int32).flatten()
    return torch.cat((counts.new_zeros(1), counts.cumsum(0, dtype=torch.int32))), layout.nonzero()[:, 2].int()


def sizes_of(q, k, layout, causal):
    (_, H, T, d), G, n = q.shape, k.shape[1], layout.shape[1]
    return dict(H=H, T=T, n=n, scale=1 / math.sqrt(d), layouts=len(layout), R=H // G, D=d, causal=causal, M=T // n)


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


@triton.jit
def queries_kernel(q, k, v, dout, lse, delta, dq, bounds, columns, H, T, n, scale, layouts, R: tl.constexpr,
                   D: tl.constexpr, causal: tl.constexpr, M: tl.constexpr):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0)
    bounds += (head % H % layouts) * n + row
    rows = row * M + tl.arange(0, M)
    queries, douts = load_tile(q, head, rows, T, D), load_tile(dout, head, rows, T, D)
    at_queries = tl.load(lse + head * T + rows), tl.load(delta + head * T + rows)
    dqueries = tl.zeros([M, D], tl.float32)
    for at in range(tl.load(bounds), tl.load(bounds + 1)):
        places = tl.load(columns + at) * M + tl.arange(0, M)
        keys, values = load_tile(k, head // R, places, T, D), load_tile(v, head // R, places, T, D)
        _, dscores = weights_of(queries, keys, values, douts, at_queries, rows, places, T, scale, causal)
        dqueries += product(dscores.to(keys.dtype), keys)
    store_tile(dq, head, rows, T, D, dqueries * scale)


@triton.jit
def keys_kernel(q, k, v, dout, lse, delta, dk, dv, bounds, columns, H, T, n, scale, layouts, R: tl.constexpr,
                D: tl.constexpr, causal: tl.constexpr, M: tl.constexpr):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)  # of queries: each has gradients of its keys
    row = tl.program_id(0)
    bounds += (head % H % layouts) * n + row
    places = row * M + tl.arange(0, M)
    keys, values = load_tile(k, head // R, places, T, D), load_tile(v, head // R, places, T, D)
    dkeys, dvalues = tl.zeros([M, D], tl.float32), tl.zeros([M, D], tl.float32)
    for at in range(tl.load(bounds), tl.load(bounds + 1)):
        rows = tl.load(columns + at) * M + tl.arange(0, M)
        queries, douts = load_tile(q, head, rows, T, D), load_tile(dout, head, rows, T, D)
        at_queries = tl.load(lse + head * T + rows), tl.load(delta + head * T + rows)
        weights, dscores = weights_of(queries, keys, values, douts, at_queries, rows, places, T, scale, causal)
        dkeys += product(tl.trans(dscores).to(queries.dtype), queries)
        dvalues += product(tl.trans(weights).to(douts.dtype), douts)
    store_tile(dk, head, places, T, D, dkeys * scale)
    store_tile(dv, head, places, T, D, dvalues)


@triton.jit
def weights_of(queries, keys, values, douts, at_queries, rows, places, T, scale, causal: tl.constexpr):
    """Of one block [M, M]; and the gradients of its scores."""
    lse, delta = at_queries
    weights = tl.exp2(scores_of(queries, keys, rows, places, T, T, scale, causal) - lse[:, None])
    return weights, weights * (product(douts, tl.trans(values)) - delta[:, None])
