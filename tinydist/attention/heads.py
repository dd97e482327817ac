"""Heads: multi-head, grouped-query and multi-query attention are one module, with as many key heads as you choose.

    kv_heads = heads       multi-head (MHA): each query head has keys and values of its own
    1 < kv_heads < heads   grouped-query (GQA): heads / kv_heads query heads share them
    kv_heads = 1           multi-query (MQA): all share them

    x [B, T, D] --query--> [B, H, T, d] --.
                --key----> [B, G, T, d] ---+--> attention --> [B, H, T, d] --out--> [B, T, D]
                --value--> [B, G, T, d] --'

Fewer key heads save few parameters and FLOPs. They are for decoding: each new token reads all keys and values once,
2 G d numbers a layer for each token of the past, and does little with them. The cache is H / G times smaller. A fourth
kind keeps neither keys nor values: see ``latent`` (MLA).

A multi-head checkpoint becomes a grouped one by mean-pooling the key and value heads of a group, and some training.

Sources: Vaswani et al. 2017, section 3.2.2; Shazeer 2019, Fast Transformer Decoding (MQA); Ainslie et al. 2023, GQA,
section 2 and, for what is lost and won, table 1.
"""

import torch
from torch import nn

from ..rules import count, each_of, flag, function, takes, whole
from .groups import check_heads
from .kv_cache import KVCache, check_call
from .naive import attention
from .rotary import Yarn, angles, rotate, score_scale


@takes(dim=count, bias=flag, rotary=angles, attend=function)
class GroupedQueryAttention(nn.Module):
    """``attention(x)`` gives [B, T, D] for x [B, T, D]: each token gathers from those that it sees.

    heads:     query heads, of dim / heads numbers each.
    kv_heads:  heads of keys and values; None: as many as heads.
    rotary:    turn queries and keys to their positions; the base of the angles, a ``Yarn``, or None: not.
    attend:    what computes attention, with a cache and without: ``attention``, ``flash_attention``, one of their kind.
               Where a cache has sequences of different lengths it is given ``past``.
    """

    def __init__(self, dim, heads, kv_heads=None, *, bias=False, rotary=None, attend=attention):
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        check_heads("GroupedQueryAttention", heads, kv_heads)
        if dim % heads:
            raise ValueError(f"GroupedQueryAttention: dim ({dim}) must be divisible by heads ({heads})")
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.rotary, self.attend = rotary, attend
        self.query = nn.Linear(dim, dim, bias)
        self.key = nn.Linear(dim, kv_heads * self.head_dim, bias)
        self.value = nn.Linear(dim, kv_heads * self.head_dim, bias)
        self.out = nn.Linear(dim, dim, bias)

    @takes(x=torch.Tensor, cache=KVCache, counts=each_of(whole))
    def forward(self, x, *, cache=None, counts=None, **options):
        """x [B, T, D] to the same. Options (causal, window, mask) go to ``attend``.

        cache:   a ``KVCache``: x follows what is in it, and each token sees itself and all before it; no options.
        counts:  with a cache, how many tokens of each sequence of x are real; None: all.
        """
        check_call(self, x, self.query.in_features, cache, counts, options)
        q, k, v = self._split(self.query(x)), self._split(self.key(x)), self._split(self.value(x))
        positions = torch.arange(x.shape[1], device=x.device) if cache is None else cache.positions(x.shape[1])
        if self.rotary is not None:
            turned = rotate(torch.cat((q, k), dim=1), positions, self.rotary)  # together: their angles are the same
            q, k = turned.split((q.shape[1], k.shape[1]), dim=1)
        attend = self.attend if cache is None else cache.behind(self.attend)
        if cache is not None:
            k, v = cache.keep(k, v, counts=counts)
        if isinstance(self.rotary, Yarn):
            options.setdefault("scale", score_scale(self.head_dim, self.rotary))
        mixed = attend(q, k, v, **options)  # [B, H, T, d]
        return self.out(mixed.transpose(1, 2).flatten(2))  # [B, T, D]

    def new_cache(self, batch, capacity):
        """An empty one, of the dtype and on the device of the weights."""
        weight = self.key.weight
        return KVCache(batch, self.kv_heads, capacity, self.head_dim, dtype=weight.dtype, device=weight.device)

    def _split(self, x):  # [B, T, H d] to [B, H, T, d]
        return x.unflatten(2, (-1, self.head_dim)).transpose(1, 2)

    def grouped(self, kv_heads):
        """A new module with fewer heads of keys and values, each the mean of those of its group."""
        check_heads("grouped", self.kv_heads, kv_heads)
        dim, bias = self.query.in_features, self.query.bias is not None
        module = GroupedQueryAttention(dim, self.heads, kv_heads, bias=bias, rotary=self.rotary, attend=self.attend).to(
            self.query.weight
        )
        state = self.state_dict()
        for name in [name for name in state if name.startswith(("key.", "value."))]:
            state[name] = mean_pool(state[name], self.kv_heads, kv_heads)
        module.load_state_dict(state)
        return module


@takes(weight=torch.Tensor)
def mean_pool(weight, heads, groups):
    """A weight [heads d, ...] to [groups d, ...]: neighboring heads become their mean (GQA, section 2.1)."""
    check_heads("mean_pool", heads, groups)
    if weight.shape[0] % heads:
        raise ValueError(f"mean_pool: weight.shape[0] ({weight.shape[0]}) must be divisible by heads ({heads})")
    return weight.unflatten(0, (groups, heads // groups, -1)).mean(1).flatten(0, 1)
