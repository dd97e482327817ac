"""Ring attention: keys and values go round a ring of ranks while each computes with those that it has.

    step      0          1          2          3          queries stay; rank r computes with the K and V of r - step
    rank 0    kv 0       kv 3       kv 2       kv 1
    rank 1    kv 1  ->   kv 0  ->   kv 3  ->   kv 2       forward: K and V move on while the rank computes
    rank 2    kv 2       kv 1       kv 0       kv 3       backward: they go round again, and the sums of their
    rank 3    kv 3       kv 2       kv 1       kv 0       gradients follow one step behind, home in the last one

A rank sends, of N tokens, width h, g of a heads as KV heads (elements):

    forward     2 N h (g/a) (p-1)/p          in the dtype of K and V
    backward    the same, and as many gradients, in float32 (float64 for float64)

A rank holds its own K and V and one block that arrives, never all. A step of c = N/p tokens takes 4 c^2 h FLOPs for
4 c h (g/a) bytes in 16 bits: the ring hides behind attention where c >= (g/a) F/B, whatever the width (F FLOP/s, B
bytes/s; no mask. Zig-zag, causal, has half of the FLOPs, and needs twice the tokens).

Source: Liu, Zaharia, Abbeel 2023, Ring Attention with Blockwise Transformers, arXiv 2310.01889, section 3.
"""

import torch
import torch.distributed as dist
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..annotate import purpose
from ..attention.groups import check_shapes
from ..rules import finite, flag, validate
from .block import attend, take_back
from .layout import layout_of, length


@validate(group=dist.ProcessGroup, causal=flag, balanced=flag, tokens=length, scale=finite)
def ring_attention(q, k, v, group=None, causal=True, balanced=True, *, tokens=None, scale=None):
    """Attention of a sequence that is sharded over ``group``: this rank's part [B, H, T/cp, d].

    q [B, H, T/cp, d], k and v [B, G, T/cp, d]: this rank's tokens, as ``shard_sequence`` deals them out.
    balanced:  zig-zag or contiguous. tokens: of the whole sequence, where parts are uneven. scale: None: 1/sqrt(d).
    """
    return checked("ring_attention", RingAttention, q, k, v, group, causal, balanced, tokens, scale)


def checked(name, function, q, k, v, group, causal, balanced, tokens, scale):
    """``function.apply``, once the local tensors are known to go together."""
    check_parts(name, q, k, v)
    layout = layout_of(name, q, group, balanced, tokens)
    return function.apply(q, torch.stack((k, v)), layout, causal, scale)


def check_parts(name, q, k, v):
    check_shapes(name, q, k, v)
    if q.shape[2] != k.shape[2] or k.shape != v.shape:
        shapes = f"got q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
        raise ValueError(f"{name}: q, k and v must have the same tokens and head_dim, {shapes}")


class RingAttention(Function):
    @staticmethod
    def forward(ctx, q, kv, layout, causal, scale):
        return attend(ctx, q, kv, around(kv, layout), layout, causal, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        q, kv, layout, dq, gradient_of = take_back(ctx, dout)
        arrived = sums = own = None
        for owner, block in around(kv, layout):
            gradient = gradient_of(owner, block)
            if owner == layout.rank:
                own = gradient  # stays here: the sums of the others come home in the end
                continue
            sums = wait(arrived)
            if gradient is not None:
                sums = gradient if sums is None else sums.add_(gradient)
            elif sums is None:
                sums = torch.zeros_like(block, dtype=dq.dtype)
            arrived = pass_on(sums, (owner - 1) % layout.ranks, layout)
        if arrived:
            own += wait(arrived)
        return dq.to(q.dtype), own.to(kv.dtype), None, None, None


def around(kv, layout):
    """(owner, its K and V), this rank's own first. The next ones are under way while these are in use."""
    for step in range(layout.ranks):
        owner = (layout.rank - step) % layout.ranks
        arriving = step + 1 < layout.ranks and pass_on(kv, (owner - 1) % layout.ranks, layout)
        yield owner, kv
        if arriving:
            kv = wait(arriving)


def pass_on(block, owner, layout):
    """Send a block to the right; from the left comes that of ``owner``: (what arrives, messages to wait for)."""
    with purpose("communication"):
        arriving = block.new_empty(*block.shape[:3], layout.size(owner), *block.shape[4:])
    left, right = (layout.rank - 1) % layout.ranks, (layout.rank + 1) % layout.ranks
    messages = [
        dist.P2POp(dist.isend, block, group=layout.group, group_peer=right),
        dist.P2POp(dist.irecv, arriving, group=layout.group, group_peer=left),
    ]
    return arriving, dist.batch_isend_irecv(messages)


def wait(passed):
    if passed is None:
        return None
    block, works = passed
    for work in works:
        work.wait()
    return block
