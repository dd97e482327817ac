r"""Flash attention: exact attention, tile by tile; the scores never leave fast memory (SRAM).

                keys
              0   1   2   3                for each tile of queries: q is read once, and stays
            +---+---+---+---+                  for each tile of keys that they see: k, v are read
    queries |\  |   |   |   | 0                    scores, exp, sums: all in fast memory
            +---+---+---+---+                  out and log-sum-exp are written once
            | x |\  |   |   | 1
            +---+---+---+---+            causal: tiles above the diagonal are not visited, and only
            | x | x |\  |   | 2          those on it need a mask
            +---+---+---+---+

Forward saves the output and one value per query, lse = log sum exp(scores). Backward recomputes the scores: the
weights are exp(scores - lse), and their gradient needs one more value per query, delta = sum of dout out.

    dv = w^T dout       dw = dout v^T       ds = w (dw - delta)       dq = ds k scale       dk = ds^T q scale

Costs per head:     FLOPs                    elements held             elements moved, with M in SRAM
    forward         4 T S d                  O(T)                      O(T S d^2 / M)
    backward        10 T S d, 5 matmuls      O((T + S) d)              O(T S d^2 / M)

Here "fast memory" is what the processor's caches make of a tile. ``hbm`` counts what moves.

Sources: Dao et al. 2022, FlashAttention, section 3 and appendix B; Dao 2023, FlashAttention-2, algorithms 1 and 2.
"""

import math

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from ..rules import count, each_of, finite, validate
from .groups import check_shapes, fold, unfold
from .mask import mask_of, tiles
from .online_softmax import finish, merge, nothing, part


@validate(scale=finite)
def flash_attention(q, k, v, *, causal=False, window=None, offset=None, scale=None, tile=(128, 128)):
    """What ``attention(q, k, v)`` gives, without its scores in memory: [B, H, T, e].

    q [B, H, T, d], k [B, G, S, d], v [B, G, S, e]; causal, window, offset, scale: as in ``attention``.
    tile:  queries and keys of a tile. Products of 16-bit tiles add up in float32.

    A query that sees nothing gets zeros. Raises ``ValueError`` and ``TypeError`` for shapes and dtypes that do not fit.
    It can be differentiated once.
    """
    check_shapes("flash_attention", q, k, v)
    band = mask_of("flash_attention", q, k, causal, window, offset)
    return flash_over("flash_attention", band, q, k, v, scale, tile)


@validate(scale=finite)
def fused_attention(q, k, v, *, causal=False, window=None, offset=None, scale=None):
    """Same as ``attention``, by torch's fused kernel. Each query must see a key."""
    check_shapes("fused_attention", q, k, v)
    T, S, heads, groups = q.shape[2], k.shape[2], q.shape[1], k.shape[1]
    visible = mask_of("fused_attention", q, k, causal, window, offset).visible(slice(0, T), slice(0, S), q.device)
    return F.scaled_dot_product_attention(q, k, v, visible, scale=scale, enable_gqa=heads != groups)


def flash_over(name, band, q, k, v, scale, tile):
    """The same for any band; ``name`` is whose errors they are."""
    if not isinstance(tile, tuple) or len(tile) != 2 or not each_of(count)(tile):
        raise ValueError(f"{name}: tile must be (queries, keys), both >= 1, got {tile!r}")
    return FlashAttention.apply(q, k, v, band, 1 / math.sqrt(q.shape[3]) if scale is None else float(scale), tile)


class FlashAttention(torch.autograd.Function):
    """Forward keeps q, k, v, the output and the log-sum-exp; backward computes the scores again."""

    @staticmethod
    def forward(ctx, q, k, v, band, scale, tile):
        with torch.autocast(q.device.type, enabled=False):  # it would round the tiles
            out, lse = flash_forward(q, k, v, band, scale, tile)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.options = band, scale, tile
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        with torch.autocast(dout.device.type, enabled=False):
            return *flash_backward(*ctx.saved_tensors, dout, *ctx.options), None, None, None


def flash_forward(q, k, v, band, scale, tile):
    """The output [B, H, T, e], and the log-sum-exp of each query's scores [B, H, T, 1]; -inf where it sees nothing."""
    H, G, wide = q.shape[1], k.shape[1], wide_of(q)
    out = q.new_empty(*q.shape[:3], v.shape[3])
    lse = q.new_empty(*q.shape[:3], 1, dtype=wide)
    for rows in tiles(slice(0, band.queries), tile[0]):
        queries = fold(q[:, :, rows].to(wide) * scale, G)  # [B, G, (H/G) t, d]
        state = nothing(queries, v.shape[3])
        for columns in tiles(band.keys_of(rows), tile[1]):
            scores = tile_scores(queries, k[:, :, columns].to(wide), band, rows, columns)
            state = merge(state, part(scores, v[:, :, columns].to(wide)))
        out[:, :, rows], lse[:, :, rows] = (unfold(each, H) for each in finish(state))
    return out, lse


def flash_backward(q, k, v, out, lse, dout, band, scale, tile):
    """The gradients of q, k, v. Each tile of keys stays while its queries come, and leaves with its sums."""
    H, G, wide = q.shape[1], k.shape[1], wide_of(q)
    delta = (dout.to(wide) * out).sum(-1, keepdim=True)  # [B, H, T, 1]
    lse = lse.clamp(min=torch.finfo(wide).min)
    dq = torch.zeros_like(q, dtype=wide)  # all tiles of keys add to it
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    for columns in tiles(slice(0, band.keys), tile[1]):
        keys, values = k[:, :, columns].to(wide), v[:, :, columns].to(wide)
        dkeys, dvalues = torch.zeros_like(keys), torch.zeros_like(values)
        for rows in tiles(band.queries_of(columns), tile[0]):
            queries = fold(q[:, :, rows].to(wide) * scale, G)
            douts = fold(dout[:, :, rows].to(wide), G)
            weights = (tile_scores(queries, keys, band, rows, columns) - fold(lse[:, :, rows], G)).exp()
            dscores = weights * (douts @ values.mT - fold(delta[:, :, rows], G))
            dvalues += weights.mT @ douts
            dkeys += dscores.mT @ queries
            dq[:, :, rows] += unfold(dscores @ keys, H) * scale
        dk[:, :, columns], dv[:, :, columns] = dkeys, dvalues
    return dq.to(q.dtype), dk, dv


def tile_scores(queries, keys, band, rows, columns):
    """Of one tile, [B, G, (H/G) t, s]; -inf for keys that are not seen."""
    scores, visible = queries @ keys.mT, band.visible(rows, columns, queries.device)
    if visible is not None:
        rows_of_heads = scores.unflatten(2, (-1, visible.shape[-2]))  # [B, G, H/G, t, s]
        rows_of_heads.masked_fill_(~visible[..., None, :, :], -math.inf)
    return scores


def wide_of(x):
    """The dtype in which tiles add up."""
    return torch.promote_types(x.dtype, torch.float32)
