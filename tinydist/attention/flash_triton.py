r"""Flash attention as a Triton kernel: the algorithm of ``flash``, written for one thread block.

A simple forward kernel to read first: one program per head and tile of queries loops over the keys and writes its
output and lse once. Each program is one iteration of the outer loop of ``flash``; all run in parallel. Exponentials
are base 2, as in hardware: exp(x) = 2^(x log2 e), and lse is a base-2 logarithm.

The public functions, ``flash_attention_triton`` and ``packed_flash_attention_triton``, are in kernels/: the same loop,
masked only in tiles that need it, autotuned per GPU, with any head dim, windows, and backward.

On a GPU kernels are compiled. On a CPU they run in Triton's interpreter, slowly: set the environment variable
TRITON_INTERPRET=1 before Python starts. Triton is not among the requirements of tinydist: ``make kernels``.

Sources: Dao 2023, FlashAttention-2, algorithm 1; Tillet et al. 2019, Triton.
"""

import math

import torch
import triton
import triton.language as tl

from .kernels.flash import flash_attention_triton, packed_flash_attention_triton
from .kernels.tiles import product

__all__ = ["flash_attention_triton", "flash_forward_triton", "packed_flash_attention_triton"]

LOWEST = tl.constexpr(-3.4e38)  # so that -inf is not subtracted from -inf
LOG2_E = tl.constexpr(math.log2(math.e))


def flash_forward_triton(q, k, v, *, causal=False, tile=(64, 64)):
    """The output [B, H, T, d] and its log-sum-exp to base 2 [B, H, T], by the plain kernel.

    q [B, H, T, d], k and v [B, G, S, d], contiguous; d a power of 2 from 16. tile: powers of 2 from 16.
    """
    (B, H, T, d), (G, S) = q.shape, k.shape[1:3]
    out, lse = torch.empty_like(q), q.new_empty(B, H, T, dtype=torch.float32)
    sizes = dict(T=T, S=S, scale=1 / math.sqrt(d), R=H // G, D=d, causal=causal, M=tile[0], N=tile[1])
    with torch.cuda.device_of(q):  # kernels start on the current device
        forward_kernel[triton.cdiv(T, tile[0]), B * H](q, k, v, out, lse, **sizes)
    return out, lse


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
def scores_of(queries, keys, rows, columns, T, S, scale, causal: tl.constexpr):
    """Of one tile [M, N], times log2 e; -inf for keys that are not seen."""
    seen = (columns < S)[None, :] & (rows < T)[:, None]
    if causal:
        seen = seen & (rows[:, None] + S - T >= columns[None, :])
    scores = product(queries, tl.trans(keys)) * (scale * LOG2_E)
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def load_tile(x, head, rows, length, D: tl.constexpr):
    """Rows [n, D] of one head of x [..., length, D]; zeros beyond its end."""
    at = (head * length + rows)[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(x + at, mask=(rows < length)[:, None], other=0.0)


@triton.jit
def store_tile(x, head, rows, length, D: tl.constexpr, values):
    at = (head * length + rows)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(x + at, values.to(x.dtype.element_ty), mask=(rows < length)[:, None])
