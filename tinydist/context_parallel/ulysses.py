"""Ulysses: an all-to-all trades tokens for heads; then each rank has the whole sequence for some of the heads.

    rank 0   tokens 0-3, heads 0 1 2 3                            tokens 0-15, head 0
    rank 1   tokens 4-7, heads 0 1 2 3         all-to-all         tokens 0-15, head 1       attention needs nobody
    rank 2   tokens 8-11, ...                ------------->       tokens 0-15, head 2
    rank 3   tokens 12-15, ...          q, k, v there; out back   tokens 0-15, head 3

A rank sends, forward (elements; backward as many; N tokens, width h, g of a heads as KV heads):

    (2 + 2 g/a) N h (p-1)/p^2                       where p divides g (the paper's 4 N h/p: g = a, and p-1 taken as p)
    2 N h (p-1)/p^2 + 2 N (h/a) (p-1)/p             where g divides p: a KV head goes to the p/g ranks that read it

That is less than a ring's 2 N h (g/a) (p-1)/p where p > 1 + a/g: with few KV heads, only on many ranks. p must divide
a. Nothing overlaps, but a causal mask is balanced on any layout, and the kernel sees the whole sequence.

``hybrid_attention``: Ulysses within a node, where links are fast, and a ring across nodes: as USP, and as Megatron's
``a2a+p2p``. A rank of ring part o and Ulysses part i has part i, contiguous, of zig-zag part o.

Sources: Jacobs et al. 2023, DeepSpeed Ulysses, arXiv 2309.14509, section 3; Fang and Zhao 2024, USP, arXiv 2405.07719.
"""

import torch
import torch.distributed as dist

from ..collectives.autograd import all_to_all
from ..rules import finite, flag, validate
from .layout import SequenceLayout, layout_of, length
from .ring import RingAttention, check_parts, ring_attention


@validate(group=dist.ProcessGroup, causal=flag, balanced=flag, tokens=length, scale=finite)
def ulysses_attention(q, k, v, group=None, causal=True, balanced=True, *, tokens=None, scale=None):
    """As ``ring_attention``. The ranks must divide the heads; and the KV heads, or these divide the ranks."""

    def attend(q, k, v):
        return RingAttention.apply(q, torch.stack((k, v)), SequenceLayout(q.shape[2]), causal, scale)

    check_parts("ulysses_attention", q, k, v)
    layout = layout_of("ulysses_attention", q, group, balanced, tokens)
    return by_heads("ulysses_attention", attend, q, k, v, layout)


@validate(group=dist.ProcessGroup, within=dist.ProcessGroup, causal=flag, balanced=flag, tokens=length, scale=finite)
def hybrid_attention(q, k, v, group=None, within=None, causal=True, balanced=True, *, tokens=None, scale=None):
    """As ``ring_attention`` over ``group``, each part of which is sharded once more, over ``within``, by Ulysses:
    ``shard_sequence(shard_sequence(x, group), within, balanced=False)``."""
    check_parts("hybrid_attention", q, k, v)
    ring = SequenceLayout.over("hybrid_attention", tokens, group, balanced) if tokens else None
    layout = layout_of("hybrid_attention", q, within, False, ring and ring.size(ring.rank))

    def attend(q, k, v):
        return ring_attention(q, k, v, group, causal, balanced, tokens=tokens, scale=scale)

    return by_heads("hybrid_attention", attend, q, k, v, layout)


def by_heads(name, attend, q, k, v, layout):
    """``attend`` on the whole sequence and this rank's heads of q, k and v: its output for this rank's tokens."""
    H, G, p = q.shape[1], k.shape[1], layout.ranks
    if H % p:
        raise ValueError(f"{name}: num_heads ({H}) must be divisible by the ranks ({p}) (rank {layout.rank})")
    if G % p and p % G:
        rule = f"num_kv_heads ({G}) must be divisible by the ranks ({p}), or the ranks by them"
        raise ValueError(f"{name}: {rule} (rank {layout.rank})")
    if p > G:
        k, v = (each.repeat_interleave(p // G, dim=1) for each in (k, v))  # for each rank the one that it reads
    return to_tokens(attend(*(to_heads(each, layout) for each in (q, k, v))), layout)


def to_heads(x, layout):
    """[B, H, T/p, d], this rank's tokens, to [B, H/p, T, d], its heads, in the order of the sequence."""
    B, H, _, d = x.shape
    each = H // layout.ranks * B * d  # elements of a token that go to one rank
    there, back = [each * x.shape[2]] * layout.ranks, [each * size for size in layout.sizes]
    parts = all_to_all(x.movedim(1, 0).flatten(), there, back, layout.group).split(back)
    whole = torch.cat([part.view(-1, B, size, d) for part, size in zip(parts, layout.sizes)], dim=2)
    return (whole[:, :, layout.order().argsort()] if layout.balanced else whole).movedim(0, 1)


def to_tokens(x, layout):
    """The way back."""
    B, H, _, d = x.shape  # H: this rank's
    size = layout.size(layout.rank)
    there, back = [H * B * d * each for each in layout.sizes], [H * B * d * size] * layout.ranks
    x = x.movedim(1, 0)
    x = x[:, :, layout.order()] if layout.balanced else x
    rows = torch.cat([part.flatten() for part in x.split(layout.sizes, dim=2)])
    return all_to_all(rows, there, back, layout.group).view(-1, B, size, d).movedim(0, 1)
