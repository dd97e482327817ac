r"""Flash attention as Triton kernels: what ``flash`` says in torch, written for one processor of a GPU.

    forward     a program for each tile of queries and head       loops over keys, writes out and lse once
    keys        a program for each tile of keys and key head      loops over its query heads and their queries: dk, dv
    queries     a program for each tile of queries and head       loops over keys again: dq

Each program is a round of the outer loop of ``flash``; all run at once. Backward has two kernels and 7 products where
``flash_backward`` has 5, so that no two programs add to the same gradient. Powers are of 2, which is what the hardware
has: exp(x) = 2^(x log2 e), and lse is a logarithm to base 2 here.

On a GPU the kernels are compiled. On a CPU they run in Triton's interpreter, slowly: set the environment variable
TRITON_INTERPRET=1 before this module is imported. Triton is not among the requirements of tinydist.

Sources: Dao 2023, FlashAttention-2, algorithms 1 and 2, section 3.2; Tillet et al. 2019, Triton.
"""

import math

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

from .groups import check_shapes

LOWEST = tl.constexpr(-3.4e38)  # so that -inf is not subtracted from -inf
LOG2_E = tl.constexpr(math.log2(math.e))
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
DIMS = (16, 32, 64, 128, 256)


def flash_attention_triton(q, k, v, *, causal=False, scale=None, tile=(64, 64)):
    """What ``flash_attention(q, k, v)`` gives, from one kernel: [B, H, T, d].

    q [B, H, T, d], k and v [B, G, S, d], d a power of 2 from 16 to 256; float16, bfloat16 or float32.
    tile:  queries and keys of a tile, powers of 2 from 16.

    A query that sees nothing gets zeros. Raises ``ValueError`` and ``TypeError`` for what does not fit. It can be
    differentiated once.
    """
    _check(q, k, v, tile)
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    return FlashTriton.apply(q.contiguous(), k.contiguous(), v.contiguous(), causal, scale, tile)


class FlashTriton(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, scale, tile):
        (B, H, T, d), (G, S) = q.shape, k.shape[1:3]
        out, lse = torch.empty_like(q), q.new_empty(B, H, T, dtype=torch.float32)
        ctx.sizes = dict(T=T, S=S, scale=scale, R=H // G, D=d, causal=causal, M=tile[0], N=tile[1])
        if out.numel():
            with torch.cuda.device_of(q):  # kernels start on the current device
                forward_kernel[triton.cdiv(T, tile[0]), B * H](q, k, v, out, lse, **ctx.sizes)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        q, k, v, out, lse = ctx.saved_tensors
        (B, H, T, _), (G, S) = q.shape, k.shape[1:3]
        dout, (dq, dk, dv) = dout.contiguous(), (torch.zeros_like(each) for each in (q, k, v))
        delta = (dout.float() * out).sum(-1)  # [B, H, T]
        if q.numel() and k.numel():
            inputs = q, k, v, dout, lse, delta
            with torch.cuda.device_of(q):
                keys_kernel[triton.cdiv(S, ctx.sizes["N"]), B * G](*inputs, dk, dv, **ctx.sizes)
                queries_kernel[triton.cdiv(T, ctx.sizes["M"]), B * H](*inputs, dq, **ctx.sizes)
        return dq, dk, dv, None, None, None


@triton.jit
def forward_kernel(q, k, v, out, lse, T, S, scale, R: tl.constexpr, D: tl.constexpr, causal: tl.constexpr,
                   M: tl.constexpr, N: tl.constexpr):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)  # b H + h; its key head is b G + h // R, R = H / G
    rows = tl.program_id(0) * M + tl.arange(0, M)
    queries = load_tile(q, head, rows, T, D)
    maximum = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    output = tl.zeros([M, D], tl.float32)
    stop = S
    if causal:
        stop = tl.minimum(S, (tl.program_id(0) + 1) * M + S - T)
    for start in range(0, stop, N):
        columns = start + tl.arange(0, N)
        keys, values = load_tile(k, head // R, columns, S, D), load_tile(v, head // R, columns, S, D)
        scores = scores_of(queries, keys, rows, columns, T, S, scale, causal)
        higher = tl.maximum(maximum, tl.max(scores, 1))
        finite = tl.maximum(higher, LOWEST)
        weights, shrink = tl.exp2(scores - finite[:, None]), tl.exp2(maximum - finite)
        total = total * shrink + tl.sum(weights, 1)
        output = output * shrink[:, None] + product(weights.to(values.dtype), values)
        maximum = higher
    store_tile(out, head, rows, T, D, output / tl.maximum(total, 1.0)[:, None])
    tl.store(lse + head * T + rows, tl.maximum(maximum, LOWEST) + tl.log2(tl.maximum(total, 1.0)), mask=rows < T)


@triton.jit
def keys_kernel(q, k, v, dout, lse, delta, dk, dv, T, S, scale, R: tl.constexpr, D: tl.constexpr,
                causal: tl.constexpr, M: tl.constexpr, N: tl.constexpr):  # fmt: skip
    group = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * N + tl.arange(0, N)
    keys, values = load_tile(k, group, columns, S, D), load_tile(v, group, columns, S, D)
    dkeys, dvalues = tl.zeros([N, D], tl.float32), tl.zeros([N, D], tl.float32)
    first = 0
    if causal:
        first = tl.maximum(0, tl.program_id(0) * N + T - S) // M * M
    for head in range(group * R, (group + 1) * R):
        for start in range(first, T, M):
            rows = start + tl.arange(0, M)
            queries, douts = load_tile(q, head, rows, T, D), load_tile(dout, head, rows, T, D)
            weights, dscores = weights_of(
                queries, keys, values, douts, lse + head * T, delta + head * T, rows, columns, T, S, scale, causal
            )
            dvalues += product(tl.trans(weights).to(douts.dtype), douts)
            dkeys += product(tl.trans(dscores).to(queries.dtype), queries)
    store_tile(dk, group, columns, S, D, dkeys * scale)
    store_tile(dv, group, columns, S, D, dvalues)


@triton.jit
def queries_kernel(q, k, v, dout, lse, delta, dq, T, S, scale, R: tl.constexpr, D: tl.constexpr,
                   causal: tl.constexpr, M: tl.constexpr, N: tl.constexpr):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * M + tl.arange(0, M)
    queries, douts = load_tile(q, head, rows, T, D), load_tile(dout, head, rows, T, D)
    dqueries = tl.zeros([M, D], tl.float32)
    stop = S
    if causal:
        stop = tl.minimum(S, (tl.program_id(0) + 1) * M + S - T)
    for start in range(0, stop, N):
        columns = start + tl.arange(0, N)
        keys, values = load_tile(k, head // R, columns, S, D), load_tile(v, head // R, columns, S, D)
        _, dscores = weights_of(
            queries, keys, values, douts, lse + head * T, delta + head * T, rows, columns, T, S, scale, causal
        )
        dqueries += product(dscores.to(keys.dtype), keys)
    store_tile(dq, head, rows, T, D, dqueries * scale)


@triton.jit
def scores_of(queries, keys, rows, columns, T, S, scale, causal: tl.constexpr):
    """Of one tile [M, N], times log2 e; -inf for keys that are not seen."""
    seen = (columns < S)[None, :] & (rows < T)[:, None]
    if causal:
        seen = seen & (rows[:, None] + S - T >= columns[None, :])
    scores = product(queries, tl.trans(keys)) * (scale * LOG2_E)
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def weights_of(queries, keys, values, douts, lse, delta, rows, columns, T, S, scale, causal: tl.constexpr):
    """The weights of one tile, computed again, and the gradient of its scores, before the scale."""
    scores = scores_of(queries, keys, rows, columns, T, S, scale, causal)
    weights = tl.exp2(scores - tl.load(lse + rows, mask=rows < T, other=0.0)[:, None])
    dweights = product(douts, tl.trans(values))
    return weights, weights * (dweights - tl.load(delta + rows, mask=rows < T, other=0.0)[:, None])


@triton.jit
def product(a, b):
    """Added up in float32. The interpreter knows no products of bfloat16: there its numbers are widened first."""
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def load_tile(x, head, rows, length, D: tl.constexpr):
    """Rows [n, D] of one head of x [..., length, D]; zeros beyond its end."""
    at = (head * length + rows)[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(x + at, mask=(rows < length)[:, None], other=0.0)


@triton.jit
def store_tile(x, head, rows, length, D: tl.constexpr, values):
    at = (head * length + rows)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(x + at, values.to(x.dtype.element_ty), mask=(rows < length)[:, None])


def _check(q, k, v, tile):
    check_shapes("flash_attention_triton", q, k, v)
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"flash_attention_triton: takes float16, bfloat16 or float32, got {q.dtype}")
    if q.shape[3] not in DIMS or v.shape[3] != q.shape[3]:
        dims = f"got {q.shape[3]} of q and k, {v.shape[3]} of v"
        raise ValueError(f"flash_attention_triton: the head dims must be one of {', '.join(map(str, DIMS))}, {dims}")
    if not isinstance(tile, tuple) or len(tile) != 2 or any(size < 16 or size & (size - 1) for size in tile):
        raise ValueError(f"flash_attention_triton: tile must be two powers of 2 from 16, got {tile!r}")
    if not q.is_cuda and not INTERPRETED.value:
        raise ValueError("flash_attention_triton: tensors on a CPU need TRITON_INTERPRET=1, set before the import")
