"""All-gather attention: every rank gathers all keys and values, then computes with its own queries.

    rank 0   q 0 | kv 0             all-gather            q 0 | kv 0  kv 1  kv 2  kv 3
    rank 1   q 1 | kv 1       ------------------>         q 1 | kv 0  kv 1  kv 2  kv 3      backward: the gradients of K
    rank 2   q 2 | kv 2                                   q 2 | ...                         and V are reduce-scattered

A rank sends as much as in a ring, 2 N h (g/a) (p-1)/p elements forward; and backward (K and V are gathered again, not
kept) that and as many gradients in float32. But it waits for them before it computes, and holds all of K and V: 2 N h
(g/a) elements, p times a ring's. It is the simplest, takes any mask, and is cheap where g is much smaller than a.

Source: Llama Team 2024, The Llama 3 Herd of Models, arXiv 2407.21783, section 3.3.2.
"""

import torch.distributed as dist
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..annotate import purpose
from ..rules import finite, flag, validate
from .block import attend, take_back
from .layout import gathered, length, summed
from .ring import checked


@validate(group=dist.ProcessGroup, causal=flag, balanced=flag, tokens=length, scale=finite)
def gather_attention(q, k, v, group=None, causal=True, balanced=True, *, tokens=None, scale=None):
    """As ``ring_attention``."""
    return checked("gather_attention", GatherAttention, q, k, v, group, causal, balanced, tokens, scale)


class GatherAttention(Function):
    @staticmethod
    def forward(ctx, q, kv, layout, causal, scale):
        return attend(ctx, q, kv, all_blocks(kv, layout), layout, causal, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        q, kv, layout, dq, gradient_of = take_back(ctx, dout)
        parts = dq.new_zeros(layout.ranks, max(layout.sizes), 2, *kv.shape[1:3], kv.shape[4])  # of each rank's K and V
        for owner, block in all_blocks(kv, layout):
            gradient = gradient_of(owner, block)
            if gradient is not None:
                parts[owner, : layout.size(owner)] = gradient.movedim(3, 0)
        return dq.to(q.dtype), summed(parts, layout).movedim(0, 3).to(kv.dtype), None, None, None


def all_blocks(kv, layout):
    """(owner, its K and V [2, B, G, S, d]), this rank's own first."""
    with purpose("communication"):
        parts = gathered(kv.movedim(3, 0), layout)
    for step in range(layout.ranks):
        owner = (layout.rank - step) % layout.ranks
        yield owner, parts[owner].movedim(0, 3)
