"""Attention of some queries to one block of keys: a kernel that also returns the log-sum-exp, and how blocks merge.

    keys            block 0            block 1            ...         each gives out [B, H, T, d] and lse [B, H, T]
                        \\                 /
    out = out + w (out of the block - out)        w = sigmoid(lse of the block - lse)
    lse = log(exp lse + exp lse of the block)

This is ``attention.online_softmax`` with each part divided by its sum: what fused kernels return. Backward of a block
needs no other block: with the lse of all keys, exp(score - lse) is the final weight.

Costs: 4 T S d FLOPs a head forward, 10 T S d backward; half of them for a causal mask, whose hidden tiles the kernel
skips. (Torch's own operators are counted without that half, by its convention: hence an operator of our own.)

Sources: Dao 2023, FlashAttention-2, section 3.1; Liu et al. 2023, Ring Attention, section 3.
"""

import math

import torch
from torch.utils.flop_counter import register_flop_formula

from ..annotate import purpose
from ..attention.flash import flash_backward, flash_forward, wide_of
from ..attention.mask import AttentionMask

aten = torch.ops.aten
TILE = (128, 128)
FUSED = ("cpu",)  # devices whose kernel is called; elsewhere tiles are computed (attention/flash.py)


@torch.library.custom_op("tinydist::block_forward", mutates_args=())
def block_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """out [B, H, T, d] and lse [B, H, T] of q [B, H, T, d] over k and v [B, G, S, d]. causal: T = S, and the same."""
    if q.device.type in FUSED:
        return aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)
    out, lse = flash_forward(q, k, v, AttentionMask(q.shape[2], k.shape[2], causal), scale, TILE)
    return out, lse[..., 0]


@torch.library.custom_op("tinydist::block_backward", mutates_args=())
def block_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of q, k and v. ``out`` and ``lse`` are those over all keys, not over this block alone."""
    if q.device.type in FUSED:
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(
            dout, q, k, v, out, lse, 0.0, causal, scale=scale
        )
    mask = AttentionMask(q.shape[2], k.shape[2], causal)
    return flash_backward(q, k, v, out, lse[..., None], dout, mask, scale, TILE)


@block_forward.register_fake
def _(q, k, v, causal, scale):
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=wide_of(q))


@block_backward.register_fake
def _(dout, q, k, v, out, lse, causal, scale):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def keep_for_backward(ctx, inputs, output):
    ctx.causal, ctx.scale = inputs[3:]
    ctx.save_for_backward(*inputs[:3], *output)


def gradients(ctx, dout, _):
    """The log-sum-exp is only kept: it has no gradient."""
    return *block_backward(dout, *ctx.saved_tensors, ctx.causal, ctx.scale), None, None


block_forward.register_autograd(gradients, setup_context=keep_for_backward)


def fused_attention(q, k, v, causal=True, scale=None):
    """Attention on one rank by the kernel of a block: with a causal mask, by half of the FLOPs."""
    with purpose("activations"):
        return block_forward(q, k, v, causal, 1 / math.sqrt(q.shape[3]) if scale is None else scale)[0]


@register_flop_formula(torch.ops.tinydist.block_forward)
def forward_flops(q, k, v, causal, *_, **__):
    (B, H, T, d), S = q, k[2]
    return 4 * B * H * T * S * d // (1 + causal)


@register_flop_formula(torch.ops.tinydist.block_backward)
def backward_flops(dout, q, k, v, out, lse, causal, *_, **__):
    return forward_flops(q, k, v, causal) * 5 // 2


class Blocks:
    """Queries of a rank over blocks of keys, one after another, in any order."""

    def __init__(self, q, layout, causal, scale):
        self.q, self.layout, self.causal = q, layout, causal
        self.scale = 1 / math.sqrt(q.shape[3]) if scale is None else float(scale)

    def _seen(self, owner):
        rank = self.layout.rank
        return self.layout.seen(rank, owner, self.causal), self.causal and owner == rank

    def forward(self, blocks):
        """out and lse. ``blocks``: (owner, its K and V [2, B, G, S, d]); this rank's own is the first."""
        for owner, (k, v) in blocks:
            seen, causal = self._seen(owner)
            if seen is None:
                continue
            rows, columns = seen
            new = block_forward(self.q[:, :, rows], k[:, :, columns], v[:, :, columns], causal, self.scale)
            if owner == self.layout.rank:
                out, lse = new[0].to(wide_of(self.q)), new[1]
            else:
                merge_(out[:, :, rows], lse[:, :, rows], *new)
        return out.to(self.q.dtype), lse

    def backward(self, owner, block, dout, out, lse, dq):
        """The gradient of an owner's K and V [2, B, G, S, d]; adds to ``dq``. None if the mask hides them."""
        seen, causal = self._seen(owner)
        if seen is None:
            return None
        (rows, columns), (k, v) = seen, block
        mine = [each[:, :, rows] for each in (self.q, out, lse)]
        q, out, lse = mine
        new = block_backward(dout[:, :, rows], q, k[:, :, columns], v[:, :, columns], out, lse, causal, self.scale)
        dq[:, :, rows] += new[0]
        gradient = torch.zeros_like(block, dtype=dq.dtype)
        gradient[0, :, :, columns], gradient[1, :, :, columns] = new[1:]
        return gradient


def attend(ctx, q, kv, blocks, *options):
    """Forward of an autograd function, over blocks as they arrive; options: layout, causal, scale."""
    out, lse = Blocks(q, *options).forward(blocks)
    ctx.save_for_backward(q, kv, out, lse)
    ctx.options = options
    return out


def take_back(ctx, dout):
    """What its backward begins with: q, kv, the layout, dq, and the gradient of an owner's block, which adds to dq."""
    q, kv, out, lse = ctx.saved_tensors
    dq, blocks = torch.zeros_like(q, dtype=wide_of(q)), Blocks(q, *ctx.options)
    return q, kv, ctx.options[0], dq, lambda owner, block: blocks.backward(owner, block, dout, out, lse, dq)


def merge_(out, lse, new_out, new_lse):
    """The result over further keys, in place."""
    out.lerp_(new_out.to(out.dtype), (new_lse - lse).sigmoid()[..., None])
    torch.logaddexp(lse, new_lse, out=lse)
