r"""Grouped-query attention: several query heads share one KV head.

    query heads       0  1  2    3  4  5       H = 6
                       \ | /      \ | /
    key, value heads     0          1          G = 2: query head h reads head h // (H / G)

G = H is multi-head attention, G = 1 multi-query attention. Keys and values are not repeated: the queries of a group
are stacked along the sequence dim and multiplied with their keys in one matmul.

    [B, H, T, d]  --fold-->  [B, G, (H/G) T, d]  @  [B, G, d, S]        a view, where the queries lie in this order

Source: Ainslie et al. 2023, GQA: Training Generalized Multi-Query Transformer Models, section 2.2.
"""

import torch

from ..rules import count, must


def fold(x, groups):
    """[B, H, T, d] to [B, G, (H/G) T, d]: the rows that read the same keys."""
    B, H, T, d = x.shape
    return x.reshape(B, groups, H // groups * T, d)


def unfold(x, heads):
    """[B, G, (H/G) T, d] back to [B, H, T, d]."""
    B, G, rows, d = x.shape
    return x.reshape(B, heads, rows * G // heads, d)


def check_shapes(name, q, k, v):
    """Raise unless q [B, H, T, d], k [B, G, S, d] and v [B, G, S, e] go together: one dtype and device, G divides H."""
    for what, given in (("q", q), ("k", k), ("v", v)):
        must(name, what, torch.Tensor, given)
    shapes = f"got q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(f"{name}: q, k and v must be [batch, heads, tokens, head_dim], {shapes}")
    if not q.dtype == k.dtype == v.dtype or not q.dtype.is_floating_point:
        raise TypeError(f"{name}: q, k and v must have the same floating dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device:
        raise ValueError(f"{name}: q, k and v must be on the same device, got {q.device}, {k.device}, {v.device}")
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(f"{name}: k and v must have the same batch, heads and tokens, {shapes}")
    if q.shape[0] != k.shape[0]:
        raise ValueError(f"{name}: q and k must have the same batch size: {shapes}")
    if q.shape[3] != k.shape[3] or q.shape[3] == 0:
        raise ValueError(f"{name}: q and k must have the same head_dim >= 1: {shapes}")
    check_heads(name, q.shape[1], k.shape[1])


def check_heads(name, heads, groups):
    if not (count(groups) and count(heads)) or heads % groups:
        raise ValueError(f"{name}: num_heads ({heads}) must be divisible by num_kv_heads ({groups})")
