"""Block-sparse attention: only the blocks of scores that a layout has are computed, forward and backward.

    layout [H, T/b, S/b]                    for each row of the layout
      x . . .      keys 0                       keys, values of its blocks are gathered: [m b, d]
      x x . .      keys 0, 1                    one small attention: [b, m b] scores, gone afterwards
      x . x .      keys 0, 2
      . . x x      keys 2, 3                m: blocks of the row

Forward saves the output and the log-sum-exp of each query; backward computes the scores again, as in ``flash``.

Costs per head, with a share p of all blocks set: FLOPs 4 p T S d forward, 10 p T S d backward; elements held
O((T + S) d), and b m b scores of one row at a time.

Sources: Child et al. 2019, Sparse Transformers, section 5.5; layouts: ``sparse_layouts``.
"""

import math

import torch
from torch.autograd.function import once_differentiable

from ..rules import count, finite, flag, validate
from .flash import wide_of
from .groups import check_shapes, fold, unfold
from .mask import AttentionMask, tiles
from .online_softmax import finish, part
from .sparse_layouts import check_layout


@validate(layout=torch.Tensor, block=count, causal=flag, scale=finite)
def block_sparse_attention(q, k, v, layout, block, *, causal=False, scale=None):
    """Attention over the blocks that ``layout`` has: [B, H, T, e].

    q [B, H, T, d], k [B, G, S, d], v [B, G, S, e].
    layout:  bool [H, T/block, S/block], rounded up; of all heads the same: [1, ...] or two dims.
    causal:  within blocks, too; the last query stands beside the last key.

    A query that sees nothing gets zeros. It can be differentiated once.
    """
    name = "block_sparse_attention"
    check_shapes(name, q, k, v)
    (H, T), S = q.shape[1:3], k.shape[2]
    layout, blocks = check_layout(name, layout), (-(-T // block), -(-S // block))
    if layout.shape[0] not in (1, H) or layout.shape[1:] != blocks:
        raise ValueError(
            f"{name}: {H} heads, {T} queries and {S} keys in blocks of {block} need a layout [{H} or 1, {blocks[0]}, "
            f"{blocks[1]}], got {list(layout.shape)}"
        )
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else float(scale)
    return BlockSparseAttention.apply(q, k, v, layout.cpu(), block, causal, scale)


class BlockSparseAttention(torch.autograd.Function):
    """Forward keeps q, k, v, the output and the log-sum-exp; backward computes the scores again."""

    @staticmethod
    def forward(ctx, q, k, v, *options):
        ctx.options = options
        with torch.autocast(q.device.type, enabled=False):
            out, lse = sparse_forward(q, k, v, *options)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        with torch.autocast(dout.device.type, enabled=False):
            return *sparse_backward(*ctx.saved_tensors, dout, *ctx.options), None, None, None, None


def sparse_forward(q, k, v, layout, block, causal, scale):
    """The output [B, H, T, e] and each query's log-sum-exp [B, H, T, 1]; -inf where it sees nothing."""
    out = q.new_zeros(*q.shape[:3], v.shape[3])
    lse = torch.full((*q.shape[:3], 1), -math.inf, dtype=wide_of(q), device=q.device)
    for heads, queries, keys in rows_of(q, k, layout, block, causal):
        scores, _, _, values = row_scores(q, k, v, heads, queries, keys, causal, scale)
        found = finish(part(scores, values))
        for whole, each in zip((out, lse), found):
            whole[:, heads, queries] = unfold(each, heads.stop - heads.start)
    return out, lse


def sparse_backward(q, k, v, out, lse, dout, layout, block, causal, scale):
    """The gradients of q, k, v: rows add to those of the keys that they see."""
    wide = wide_of(q)
    delta = (dout.to(wide) * out).sum(-1, keepdim=True)  # [B, H, T, 1]
    lse = lse.clamp(min=torch.finfo(wide).min)
    dq, dk, dv = (torch.zeros_like(each, dtype=wide) for each in (q, k, v))
    for heads, queries, keys in rows_of(q, k, layout, block, causal):
        scores, rows_q, its_keys, values = row_scores(q, k, v, heads, queries, keys, causal, scale)
        G, H, groups = scores.shape[1], heads.stop - heads.start, groups_of(heads, q, k)
        douts, lses, deltas = (fold(each[:, heads, queries].to(wide), G) for each in (dout, lse, delta))
        weights = (scores - lses).exp()
        dscores = weights * (douts @ values.mT - deltas)
        dq[:, heads, queries] = unfold(dscores @ its_keys, H) * scale
        dk[:, groups].index_add_(2, keys, dscores.mT @ rows_q)
        dv[:, groups].index_add_(2, keys, weights.mT @ douts)
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


def rows_of(q, k, layout, block, causal):
    """Each row of blocks that sees a key: its heads (a slice), their queries (a slice), and the keys (indices)."""
    H, T, S = q.shape[1], q.shape[2], k.shape[2]
    mask = AttentionMask(T, S, causal)
    for head, of_head in enumerate(layout):
        heads = slice(0, H) if len(layout) == 1 else slice(head, head + 1)
        for queries, row in zip(tiles(slice(0, T), block), of_head):
            columns = row[: -(-mask.keys_of(queries).stop // block)].nonzero()  # no block that causal hides
            keys = (columns * block + torch.arange(block)).flatten()
            if len(keys):
                yield heads, queries, keys[keys < S].to(q.device)


def row_scores(q, k, v, heads, queries, keys, causal, scale):
    """Of a row of blocks: scores [B, G, (H/G) b, m b], -inf where causal hides a key; scaled queries; keys; values."""
    wide, groups = wide_of(q), groups_of(heads, q, k)
    its_keys, values = (each[:, groups].index_select(2, keys).to(wide) for each in (k, v))
    rows_q = fold(q[:, heads, queries].to(wide) * scale, its_keys.shape[1])
    scores = rows_q @ its_keys.mT
    if causal:
        place = torch.arange(queries.start, queries.stop, device=q.device)[:, None] + k.shape[2] - q.shape[2]
        by_heads = scores.unflatten(2, (-1, queries.stop - queries.start))  # [B, G, H/G, b, m b]
        by_heads.masked_fill_(place < keys, -math.inf)
    return scores, rows_q, its_keys, values


def groups_of(heads, q, k):
    """The key heads, as a slice, that these query heads read."""
    each = q.shape[1] // k.shape[1]
    return slice(heads.start // each, (heads.stop - 1) // each + 1)
