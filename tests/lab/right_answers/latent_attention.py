"""Other right answers to the exercises of 09b_latent_attention: they must pass."""

import math

import torch
from lab.registered import others

RIGHT_ANSWERS, right = others()


def causal(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


def parts_of(q, rows, up, r):
    """Queries and their rotary part; latents and rotary keys; of each head, what makes keys and values."""
    d = q.shape[-1] - r
    return q[..., :d], q[..., d:], rows[:, None, :, :-r], rows[:, None, :, -r:], up[:, :d], up[:, d:]


def over_latents(q, rows, up, r, absorbs):
    T, S = q.shape[2], rows.shape[1]
    contents, turned, latents, keys, of_keys, of_values = parts_of(q, rows, up, r)
    scores = (contents @ of_keys) @ latents.mT if absorbs else contents @ (latents @ of_keys.mT).mT
    scores = (scores + turned @ keys.mT) * q.shape[-1] ** -0.5
    weights = scores.masked_fill(~causal(T, S), -math.inf).softmax(-1)
    return weights @ latents @ of_values.mT if absorbs else weights @ (latents @ of_values.mT)


@right("latent_attention")
def by_the_flops_of_both(q, rows, up, r):
    """All products are counted, the rotary part as well."""
    (H, T, _), S, (_, more, c) = q.shape[1:], rows.shape[1], up.shape
    made = H * (S * c * more + T * S * (more + r))
    absorbed = H * (T * c * more + T * S * (2 * c + r))
    return over_latents(q, rows, up, r, absorbs=absorbed < made)


@right("latent_attention")
def head_after_head(q, rows, up, r):
    T, S, (_, more, c) = q.shape[2], rows.shape[1], up.shape
    absorbs = T * S * (2 * c - more) < (S - T) * c * more
    heads = zip(q.split(1, dim=1), up.split(1))
    return torch.cat([over_latents(query, rows, matrix, r, absorbs) for query, matrix in heads], 1)


@right("latent_attention")
def by_einsum_over_whole_rows(q, rows, up, r):
    """Absorbed it is multi-query attention: the rows as they lie are the keys."""
    T, S, (_, more, c) = q.shape[2], rows.shape[1], up.shape
    hidden = torch.zeros(T, S, dtype=q.dtype).masked_fill(~causal(T, S), -math.inf)
    contents, turned, _, keys, of_keys, of_values = parts_of(q, rows, up, r)
    if T / S + T * (2 / more - 1 / c) < 1:
        short = torch.cat([torch.einsum("bhtd,hdc->bhtc", contents, of_keys), turned], -1)
        weights = (torch.einsum("bhtc,bsc->bhts", short, rows) / q.shape[-1] ** 0.5 + hidden).softmax(-1)
        return torch.einsum("bhtc,hec->bhte", torch.einsum("bhts,bsc->bhtc", weights, rows[..., :c]), of_values)
    made = torch.einsum("bsc,hdc->bhsd", rows[..., :c], of_keys)
    made = torch.cat([made, keys.expand(-1, len(up), -1, -1)], -1)
    weights = (torch.einsum("bhtd,bhsd->bhts", q, made) / q.shape[-1] ** 0.5 + hidden).softmax(-1)
    return weights @ torch.einsum("bsc,hec->bhse", rows[..., :c], of_values)


@right("divided_attention")
def rank_by_rank(numbers, kv_heads, layers, weights, ranks, requests, tokens, memory):
    """Who has which KV heads and requests, counted."""
    heads = max(len(range(rank, max(kv_heads, ranks), ranks)) for rank in range(ranks))
    most = max(len(range(rank, requests, ranks)) for rank in range(ranks))
    token = layers * numbers * 2
    held = {"heads": weights / ranks + requests * tokens * heads * token}
    held["requests"] = weights + most * tokens * kv_heads * token
    ways = sorted((nbytes, way) for way, nbytes in held.items() if nbytes <= memory)
    return held | {"choice": ways[0][1] if ways else "neither"}


@right("divided_attention")
def with_ceil(numbers, kv_heads, layers, weights, ranks, requests, tokens, memory):
    cache = 2 * numbers * layers * tokens
    by_heads = weights / ranks + math.ceil(kv_heads / ranks) * requests * cache
    by_requests = weights + math.ceil(requests / ranks) * kv_heads * cache
    nbytes, choice = min((by_heads, "heads"), (by_requests, "requests"))
    return {"heads": by_heads, "requests": by_requests, "choice": choice if nbytes <= memory else "neither"}
