r"""Multi-head latent attention (MLA): the cache holds one latent per token, projected to each head's keys and values.

    x [B, T, D] --down--> latent [B, T, c] ----up, for each head----> keys [B, H, T, d], values [B, H, T, e]
        |    \---------> rotary key  [B, T, r], rotated; all heads share it
        '--query-------> [B, H, T, d + r], the last r rotated          cached: c + r elements per token

RoPE cannot be applied to keys made from the latent: the rotation would stand between the two matrices below. So r extra
dimensions carry the position. A score is (query . key + rotary query . rotary key) / sqrt(d + r).

With weight absorption keys are never materialized. query . (U latent) = (U^T query) . latent: the key up-projection is
applied to the queries, attention averages latents, and the value up-projection is applied to the result. That is
multi-query attention directly over the cache.

    FLOPs / 2H, T queries, S keys       plain: T S (d + r + e) + S c (d + e)     absorbed: T S (2c + r) + T c (d + e)

Decoding uses absorption (T = 1, and S keys need not be computed), training and prefill do not (T = S): the cheaper of
the two is chosen. DeepSeek-V3, with d = e = 128, c = 512, r = 64: absorption does not pay from 171 queries on, however
many keys.

    bytes per token = layers (c + r) (bytes a number)        DeepSeek-V3, 61 layers, bf16: 70,272
    as many as grouped-query attention would hold with (c + r) / 2d KV heads: 2.25

Its long contexts use ``rotary=Yarn(40)``: lower rotation frequencies, and a lower softmax temperature.

Sources: DeepSeek-AI 2024, DeepSeek-V2, sections 2.1.2 (latents, absorbing), 2.1.3 (the rotary key), 2.1.4 (bytes) and
appendix C (all formulas); DeepSeek-V3, sections 2.1.1 and 4.3 (its YaRN); the published inference code (the norms of
both latents, the absorbed decode, what is sharpened).
"""

from functools import partial

import torch
from torch import nn

from ..rules import count, each_of, flag, function, positive, validate, whole
from .kv_cache import Slots, check_call
from .naive import attention
from .rotary import angles, rotate, score_scale


@validate(layers=count, latent=count, rotary_dim=count, dtype=torch.dtype)
def latent_bytes_per_token(layers, latent=512, rotary_dim=64, dtype=torch.bfloat16):
    """Bytes per token in the latent cache: a latent and a rotary key per layer, however many heads there are."""
    return layers * (latent + rotary_dim) * dtype.itemsize


@validate(batch=count, capacity=whole, latent=count, rotary_dim=count, dtype=torch.dtype)
class LatentCache(Slots):
    """Of one layer: latents and rotary keys beside one another, [batch, 1, capacity, latent + rotary_dim]."""

    def __init__(self, batch, capacity, latent=512, rotary_dim=64, dtype=None, device=None):
        super().__init__(latents=torch.zeros(batch, 1, capacity, latent + rotary_dim, dtype=dtype, device=device))


@validate(dim=count, heads=count, latent=count, head_dim=count, value_dim=count, query_latent=count)
@validate(rotary=angles, eps=positive, attend=function)
class LatentAttention(nn.Module):
    """``attention(x)`` maps x [B, T, D] to [B, T, D]: each token attends to the tokens that the mask allows.

    latent, rotary_dim:  dimensions of the latent and of the rotary key, c and r.
    head_dim, value_dim: of a head's keys without their rotary part, d, and values, e; None: d.
    query_latent:        dimension of a latent for queries, which saves memory in training; None: no query latent.
    rotary, eps:         the base of the angles, or a ``Yarn``; what the norms of the latents add to the mean square.
    attend:              what computes attention: ``attention``, ``flash_attention``, one of their kind.
    """

    def __init__(
        self, dim, heads, *, latent=512, rotary_dim=64, head_dim=128, value_dim=None, query_latent=None,
        rotary=10_000.0, eps=1e-6, attend=attention,
    ):  # fmt: skip
        super().__init__()
        if not count(rotary_dim) or rotary_dim % 2:
            raise ValueError(f"LatentAttention: rotary_dim must be even (RoPE rotates pairs), got {rotary_dim!r}")
        value_dim = head_dim if value_dim is None else value_dim
        self.heads, self.rotary, self.attend = heads, rotary, attend
        self.latent, self.rotary_dim, self.head_dim, self.value_dim = latent, rotary_dim, head_dim, value_dim
        self.query = _projection(dim, heads * (head_dim + rotary_dim), query_latent, eps)
        self.down = nn.Linear(dim, latent + rotary_dim, bias=False)
        self.norm = nn.RMSNorm(latent, eps)
        self.up = nn.Linear(latent, heads * (head_dim + value_dim), bias=False)  # of each head: its keys, its values
        self.out = nn.Linear(heads * value_dim, dim, bias=False)

    @validate(x=torch.Tensor, cache=LatentCache, counts=each_of(whole), absorbed=flag)
    def forward(self, x, *, cache=None, counts=None, absorbed=None, **options):
        """x [B, T, D] to the same. Options (causal, window) go to ``attend``.

        cache:     x follows what is in it, and each token sees itself and all before it; no options.
        counts:    with a cache, how many tokens of each sequence of x are real; None: all.
        absorbed:  use weight absorption; None: if it costs fewer FLOPs.
        """
        check_call(self, x, self.down.in_features, cache, counts, options)
        positions = torch.arange(x.shape[1], device=x.device) if cache is None else cache.positions(x.shape[1])
        queries, rows = self._queries(x, positions), self._rows(x, positions)
        attend = partial(self.attend, **options)
        if cache is not None:
            attend = cache.with_prefix(self.attend)
            (rows,) = cache.keep(rows, counts=counts)
        if absorbed is None:
            absorbed = self.should_absorb(x.shape[0] * x.shape[1] // len(rows), rows.shape[2])
        mix = self._absorbed if absorbed else self._plain
        scale = score_scale(self.head_dim + self.rotary_dim, self.rotary)
        mixed = mix(partial(attend, scale=scale), queries, rows)
        return self.out(mixed.transpose(1, 2).flatten(2))  # [B, T, D]

    def should_absorb(self, queries, keys):
        """Whether it costs fewer FLOPs (weight absorption), see above."""
        more = queries * keys * (2 * self.latent - self.head_dim - self.value_dim)
        return more < (keys - queries) * self.latent * (self.head_dim + self.value_dim)

    def new_cache(self, batch, capacity):
        """An empty one, of the dtype and on the device of the weights."""
        weight = self.down.weight
        return LatentCache(batch, capacity, self.latent, self.rotary_dim, dtype=weight.dtype, device=weight.device)

    def _queries(self, x, positions):  # [B, H, T, d + r]
        split = self.query(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
        contents, rotary = split.split([self.head_dim, self.rotary_dim], dim=-1)
        return torch.cat([contents, rotate(rotary, positions, self.rotary)], dim=-1)

    def _rows(self, x, positions):  # [B, 1, T, c + r], what a token leaves
        latents, rotary = self.down(x)[:, None].split([self.latent, self.rotary_dim], dim=-1)
        return torch.cat([self.norm(latents), rotate(rotary, positions, self.rotary)], dim=-1)

    def _plain(self, attend, queries, rows):  # [B, H, T, e]
        latents, rotary = rows.split([self.latent, self.rotary_dim], dim=-1)
        made = self.up(latents[:, 0]).unflatten(2, (self.heads, -1)).transpose(1, 2)  # [B, H, S, d + e]
        keys, values = made.split([self.head_dim, self.value_dim], dim=-1)
        keys = torch.cat([keys, rotary.expand(-1, self.heads, -1, -1)], dim=-1)
        return attend(queries, keys, values)

    def _absorbed(self, attend, queries, rows):  # the same
        of_keys, of_values = self.up.weight.unflatten(0, (self.heads, -1)).split([self.head_dim, self.value_dim], dim=1)
        contents, rotary = queries.split([self.head_dim, self.rotary_dim], dim=-1)
        queries = torch.cat([contents @ of_keys, rotary], dim=-1)  # [B, H, T, c + r]
        return attend(queries, rows, rows[..., : self.latent]) @ of_values.mT


def _projection(inputs, outputs, middle, eps):
    if middle is None:
        return nn.Linear(inputs, outputs, bias=False)
    return nn.Sequential(
        nn.Linear(inputs, middle, bias=False), nn.RMSNorm(middle, eps), nn.Linear(middle, outputs, bias=False)
    )
