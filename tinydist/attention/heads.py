"""Multi-head, grouped-query and multi-query attention as one module with a configurable number of KV heads.

    kv_heads = heads       multi-head (MHA): each query head has keys and values of its own
    1 < kv_heads < heads   grouped-query (GQA): heads / kv_heads query heads share them
    kv_heads = 1           multi-query (MQA): all share them

    x [B, T, D] --query--> [B, H, T, d] --.
                --key----> [B, G, T, d] ---+--> attention --> [B, H, T, d] --out--> [B, T, D]
                --value--> [B, G, T, d] --'

Fewer KV heads save few parameters and FLOPs, but speed up decoding: each new token reads all keys and values once, 2 G
d elements per layer and cached token, for few FLOPs. The cache is H / G times smaller. A fourth variant caches neither
keys nor values: see ``latent`` (MLA).

Sources: Vaswani et al. 2017, section 3.2.2; Shazeer 2019, Fast Transformer Decoding (MQA); Ainslie et al. 2023, GQA,
section 2, and table 1 for the trade-off in quality.
"""

import torch
from torch import nn

from ..rules import count, each_of, flag, function, validate, whole
from .groups import check_heads
from .kv_cache import KVCache, check_call
from .naive import attention
from .rotary import Yarn, angles, rotate, score_scale
from .window_cache import WindowKVCache


@validate(dim=count, bias=flag, rotary=angles, window=count, attend=function)
class GroupedQueryAttention(nn.Module):
    """``attention(x)`` maps x [B, T, D] to [B, T, D]: each token attends to the tokens that the mask allows.

    heads:     number of query heads; head_dim is dim / heads.
    kv_heads:  number of KV heads; None: as many as heads.
    rotary:    RoPE for queries and keys: the base, a ``Yarn``, or None for no rotary embedding.
    window:    sliding window: a token sees itself and the window - 1 before it; None: all before it.
    attend:    the attention function: ``attention``, ``flash_attention`` or one with the same signature.
               If a cache holds sequences of different lengths it is passed ``offset``.
    """

    def __init__(self, dim, heads, kv_heads=None, *, bias=False, rotary=None, window=None, attend=attention):
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        check_heads("GroupedQueryAttention", heads, kv_heads)
        if dim % heads:
            raise ValueError(f"GroupedQueryAttention: dim ({dim}) must be divisible by heads ({heads})")
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.rotary, self.window, self.attend = rotary, window, attend
        self.query = nn.Linear(dim, dim, bias)
        self.key = nn.Linear(dim, kv_heads * self.head_dim, bias)
        self.value = nn.Linear(dim, kv_heads * self.head_dim, bias)
        self.out = nn.Linear(dim, dim, bias)

    @validate(x=torch.Tensor, cache=KVCache, counts=each_of(whole))
    def forward(self, x, *, cache=None, counts=None, **options):
        """x [B, T, D] to the same. Options (causal, window, mask) go to ``attend``.

        cache:   a ``KVCache``: x follows what is in it, and each token sees itself and all before it; no options.
        counts:  with a cache, how many tokens of each sequence of x are real; None: all.
        """
        check_call(self, x, self.query.in_features, cache, counts, options)
        q, k, v = self._split(self.query(x)), self._split(self.key(x)), self._split(self.value(x))
        positions = torch.arange(x.shape[1], device=x.device) if cache is None else cache.positions(x.shape[1])
        if self.rotary is not None:
            both = rotate(torch.cat((q, k), dim=1), positions, self.rotary)  # together: their angles are the same
            q, k = both.split((q.shape[1], k.shape[1]), dim=1)
        attend = self.attend if cache is None else cache.with_prefix(self.attend)
        if cache is not None:
            k, v = cache.keep(k, v, counts=counts)
        if self.window is not None:
            options.setdefault("window", self.window)
        if isinstance(self.rotary, Yarn):
            options.setdefault("scale", score_scale(self.head_dim, self.rotary))
        mixed = attend(q, k, v, **options)  # [B, H, T, d]
        return self.out(mixed.transpose(1, 2).flatten(2))  # [B, T, D]

    def new_cache(self, batch, capacity):
        """An empty one, of the dtype and on the device of the weights; with a window, of no more than its tokens."""
        weight, kind = self.key.weight, KVCache
        if self.window is not None and self.window < capacity:
            kind, capacity = WindowKVCache, self.window
        return kind(batch, self.kv_heads, capacity, self.head_dim, dtype=weight.dtype, device=weight.device)

    def _split(self, x):  # [B, T, H d] to [B, H, T, d]
        return x.unflatten(2, (-1, self.head_dim)).transpose(1, 2)
