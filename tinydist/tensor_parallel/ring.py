"""Collective matmul: a ring all-gather or reduce-scatter overlapped with the matmul of the chunks that have arrived.

    gather, then multiply     t ranks pass their tokens round a ring; each multiplies what it has, while the next come
        rank 0      x0 W | x3 W | x2 W | x1 W
        arriving    x3     x2     x1
    multiply, then scatter    a sum passes all ranks, and each adds its matmul, computed while the sum was sent
        rank 0      y3     | y2     | y1     | y0             the last is its own
        arriving             y2 of 3  y1 of 3, 2  y0 of 3, 2, 1

Each is the backward of the other. They send as much as an all-gather or a reduce-scatter: (t-1)/t of all, in t - 1
messages. Time: t matmuls of 1/t each, of which the first (the last) overlaps with nothing and the others with a message
each: max(matmul, message) t - 1 times, plus one matmul. Smaller matmuls are less efficient on a GPU, which the virtual
clock does not model. Sources: Wang et al., Overlap Communication with Dependent Computation via Decomposition, 2023;
torch's async TP, torch.distributed._symmetric_memory.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..annotate import purpose


class ColumnRing(Function):
    """``ColumnProduct``, overlapped. The gathered x is saved for backward."""

    @staticmethod
    def forward(ctx, x, weight, bias, layout):
        with purpose("activations"):
            y, entered = gathered_product(x, weight, bias, layout)
        ctx.save_for_backward(entered, weight)
        ctx.layout, ctx.has_bias = layout, bias is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        entered, weight = ctx.saved_tensors
        dx = scattered_product(gradient, weight.mT, ctx.layout)
        return dx, for_weight(gradient, entered), gradient.flatten(0, -2).sum(0) if ctx.has_bias else None, None


class RowRing(Function):
    """A row-parallel matmul and ``layout.leave``, overlapped."""

    @staticmethod
    def forward(ctx, x, weight, layout):
        ctx.save_for_backward(x, weight)
        ctx.layout = layout
        with purpose("activations"):
            return scattered_product(x, weight, layout)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        dx, entered = gathered_product(gradient, weight.mT, None, ctx.layout)
        return dx, for_weight(entered, x), None


def gathered_product(x, weight, bias, layout):
    """All tokens times the weight, and all tokens: of x [B, T/t, D], [B, T, V] and [B, T, D]."""
    rank, t = layout.rank, layout.ranks
    parts, products = [torch.empty_like(x) for _ in range(t)], [None] * t
    parts[rank] = x.contiguous()
    for step in range(t):
        here, coming = (rank - step) % t, (rank - step - 1) % t
        finish = passing(parts[here], parts[coming], layout) if step < t - 1 else lambda: None
        products[here] = F.linear(parts[here], weight, bias)
        finish()
    return torch.cat(products, layout.dim), torch.cat(parts, layout.dim)


def scattered_product(x, weight, layout):
    """This rank's tokens of the sum over all ranks: of x [B, T, D], [B, T/t, V]."""
    rank, t = layout.rank, layout.ranks
    parts, total = layout.parts(x), None
    for step in range(t):
        here = (rank - step - 1) % t  # whose sum passes now
        arriving = torch.empty_like(total) if step else None
        finish = passing(total, arriving, layout) if step else lambda: None
        product = F.linear(parts[here], weight)
        finish()
        total = product.add_(arriving) if step else product
    return total


def passing(tensor, arriving, layout):
    """Send to the next rank, receive from the previous one; returns a function that waits."""
    before, after = (layout.rank - 1) % layout.ranks, (layout.rank + 1) % layout.ranks
    messages = [
        dist.P2POp(dist.isend, tensor, group=layout.group, group_peer=after),
        dist.P2POp(dist.irecv, arriving, group=layout.group, group_peer=before),
    ]
    works = dist.batch_isend_irecv(messages)
    return lambda: [work.wait() for work in works]


def for_weight(gradient, x):
    return gradient.flatten(0, -2).mT @ x.flatten(0, -2)
