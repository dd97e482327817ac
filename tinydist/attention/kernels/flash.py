"""Flash attention on a GPU: the public functions and their autograd Function.

On a CPU the kernels run in Triton's interpreter, slowly: set the environment variable TRITON_INTERPRET=1 before Python
starts.
"""

import math
from itertools import pairwise

import torch
from torch.autograd.function import once_differentiable

from ...rules import count, each_of, finite, validate
from ..groups import check_shapes
from ..mask import AttentionMask, mask_of
from ..packed import packed_mask
from .configs import WIDEST
from .launch import KernelArguments, backward, forward
from .tiles import INTERPRETED


@validate(scale=finite)
def flash_attention_triton(q, k, v, *, causal=False, window=None, offset=None, scale=None, tile=None):
    """What ``flash_attention(q, k, v)`` gives, from one kernel: [B, H, T, e].

    q [B, H, T, d], k [B, G, S, d], v [B, G, S, e]; float16, bfloat16 or float32, wherever they lie.
    d and e up to 256, of float32 up to 128.
    causal, window, offset, scale:  as in ``attention``.
    tile:  queries and keys of a tile, powers of 2 from 16; None: the fastest that fits, which the first call finds.

    A query that sees nothing gets zeros. Raises ``ValueError`` and ``TypeError`` for what does not fit. It can be
    differentiated once; parts of q's gradient are added in any order.
    """
    name = "flash_attention_triton"
    check_shapes(name, q, k, v)
    band = mask_of(name, q, k, causal, window, offset)
    offsets = None if offset is None else torch.tensor(offset, dtype=torch.int32, device=q.device)
    task = dict(nearest=band.nearest, farthest=band.farthest, longest_q=band.queries, longest_k=band.keys)
    return _flash(name, q, k, v, scale, tile, task | dict(offsets=offsets))


@validate(scale=finite)
def packed_flash_attention_triton(
    q, k, v, cu_seqlens, *, cu_seqlens_k=None, causal=False, window=None, scale=None, tile=None
):
    """What ``packed_flash_attention`` gives, likewise."""
    name = "packed_flash_attention_triton"
    packed = packed_mask(name, q, k, v, cu_seqlens, cu_seqlens_k, causal, window)
    band, bounds = AttentionMask(packed.queries, packed.keys, causal, window), (packed.bounds_q, packed.bounds_k)
    longest_q, longest_k = (max((stop - start for start, stop in pairwise(each)), default=0) for each in bounds)
    bounds_q, bounds_k = (torch.tensor(each, dtype=torch.int32, device=q.device) for each in bounds)
    task = dict(nearest=band.nearest, farthest=band.farthest, longest_q=longest_q, longest_k=longest_k)
    return _flash(name, q, k, v, scale, tile, task | dict(bounds_q=bounds_q, bounds_k=bounds_k))


def _flash(name, q, k, v, scale, tile, task):
    _check(name, q, v, tile)
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else float(scale)
    if scale <= 0:  # the kernels take the maximum of scores before they are scaled
        q, scale = q * ((scale > 0) - (scale < 0)), abs(scale) or 1.0
    return FlashTriton.apply(q, k, v, KernelArguments(scale=scale, tile=tile, **task))


class FlashTriton(torch.autograd.Function):
    """Forward keeps q, k, v, the output and the log-sum-exp; backward computes the scores again."""

    @staticmethod
    def forward(ctx, q, k, v, task):
        q, k, v = map(_side_by_side, (q, k, v))
        if q.shape[0] * q.shape[1] * q.shape[2] and k.shape[2]:
            out, lse = forward(task, q, k, v)
        else:
            out, lse = q.new_zeros(*q.shape[:3], v.shape[3]), None
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.task = task
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        q, k, v, out, lse = ctx.saved_tensors
        if lse is None:
            return *map(torch.zeros_like, (q, k, v)), None
        return *backward(ctx.task, q, k, v, out, lse, _side_by_side(dout)), None


def _side_by_side(x):
    """The last dim must be contiguous; kernels take any other strides."""
    return x if x.stride(3) == 1 else x.contiguous()


def _check(name, q, v, tile):
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"{name}: dtype must be float16, bfloat16 or float32, got {q.dtype}")
    widest, dims = WIDEST[q.itemsize], f"got {q.shape[3]} of q and k, {v.shape[3]} of v"
    if not 0 < v.shape[3] <= widest >= q.shape[3]:
        raise ValueError(f"{name}: head_dim for {q.dtype} must be from 1 to {widest}, {dims}")
    sizes = isinstance(tile, tuple) and len(tile) == 2 and each_of(count)(tile)
    if tile is not None and not (sizes and all(size >= 16 and size & (size - 1) == 0 for size in tile)):
        raise ValueError(f"{name}: tile must be two powers of 2 >= 16, or None, got {tile!r}")
    if not q.is_cuda and not INTERPRETED.value:
        raise ValueError(f"{name}: CPU tensors require TRITON_INTERPRET=1, set before Python starts")
