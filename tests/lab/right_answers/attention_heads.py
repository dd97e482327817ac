"""Other right answers to the exercises of 09_attention_heads: they must pass."""

import math
from fractions import Fraction

import torch
import torch.nn.functional as F
from lab.registered import others

from tinydist.attention import rotate

RIGHT_ANSWERS, right = others()


def causal(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


def one_by_one(q, k, v, seen):
    """Head by head, without a copy."""
    H, G = q.shape[1], k.shape[1]
    groups = (torch.arange(H) // (H // G)).tolist()
    scores = torch.stack([q[:, h] @ k[:, g].mT for h, g in enumerate(groups)], 1) / math.sqrt(q.shape[-1])
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    return torch.stack([weights[:, h] @ v[:, g] for h, g in enumerate(groups)], 1)


@right("decode_step")
def all_slots_are_read_and_most_hidden(q, k, v, cache):
    n, rows = cache.lengths.clone(), torch.arange(len(q))
    q, k = rotate(q, n[:, None]), rotate(k, n[:, None])
    cache.keys[rows, :, n], cache.values[rows, :, n] = k[:, :, 0], v[:, :, 0]
    cache.lengths += 1
    seen = torch.arange(cache.keys.shape[2]) <= n[:, None, None, None]
    return one_by_one(q, cache.keys, cache.values, seen)


@right("decode_step")
def row_by_row(q, k, v, cache):
    rows = []
    for row, n in enumerate(cache.lengths.tolist()):
        mine = [each[row : row + 1] for each in (q, k, v, cache.keys, cache.values)]
        at = torch.tensor([n])
        mine[3][:, :, n], mine[4][:, :, n] = rotate(mine[1], at)[:, :, 0], mine[2][:, :, 0]
        rows.append(one_by_one(rotate(mine[0], at), mine[3][:, :, : n + 1], mine[4][:, :, : n + 1], causal(1, n + 1)))
    cache.lengths += 1
    return torch.cat(rows)


@right("decode_step")
def written_by_scatter_and_mixed_by_einsum(q, k, v, cache):
    """``cache.lengths`` is a new tensor."""
    (B, G, _, d), n = k.shape, cache.lengths
    place = n[:, None, None, None].expand(B, G, 1, d)
    cache.keys.scatter_(2, place, rotate(k, n[:, None]))
    cache.values.scatter_(2, place, v)
    cache.lengths = n + 1
    seen = torch.arange(int(n.max()) + 1) <= n[:, None]
    keys, values = (each[:, :, : seen.shape[1]] for each in (cache.keys, cache.values))
    scores = torch.einsum("bgrd,bgsd->bgrs", rotate(q, n[:, None]).view(B, G, -1, d), keys) / d**0.5
    weights = torch.where(seen[:, None, None], scores, -math.inf).softmax(-1)
    return torch.einsum("bgrs,bgsd->bgrd", weights, values).reshape(q.shape)


@right("plan_cache")
def from_bytes_by_bits(model, tokens, gigabytes):
    kept = model.latent + model.rotary or 2 * model.kv_heads * model.hidden / model.heads
    bits = int(model.dtype[2:]) * model.layers * kept
    gib = bits / 8 * tokens / 1024**3
    return {"bytes a token": bits / 8, "GiB a sequence": gib, "batch": math.floor(gigabytes * 1e9 / (gib * 1024**3))}


@right("plan_cache")
def with_fractions(model, tokens, gigabytes):
    size = {"fp32": 4, "fp16": 2}.get(model.dtype, 1)
    of_heads = 0 if model.latent else 2 * Fraction(model.hidden * model.kv_heads, model.heads)
    token = (of_heads + model.latent + model.rotary) * model.layers * size
    batch = Fraction(gigabytes) * 10**9 / (token * tokens)
    return {"batch": int(batch), "GiB a sequence": float(token * tokens / 2**30), "bytes a token": int(token)}


@right("plan_cache")
def counted_one_by_one(model, tokens, gigabytes):
    shape = 2, model.layers, model.kv_heads, model.hidden // model.heads
    if model.latent:
        shape = model.layers, model.latent + model.rotary
    token = torch.empty(
        shape, dtype=getattr(torch, {"fp32": "float32", "fp16": "half"}.get(model.dtype, "int8"))
    ).nbytes
    room, batch = gigabytes * 1e9, 0
    while (batch + 1) * token * tokens <= room:
        batch += 1
    return {"bytes a token": token, "GiB a sequence": token * tokens / 2**30, "batch": batch}


@right("mended_cache")
def token_by_token(q, k, v, cache, counts):
    """A row at a time; only what is real."""
    out = torch.zeros_like(q)
    for row, count in enumerate(counts.tolist()):
        for i in range(count):
            n, one = int(cache.lengths[row]), slice(row, row + 1)
            at = torch.tensor([n])
            cache.keys[one, :, n : n + 1] = rotate(k[one, :, i : i + 1], at)
            cache.values[one, :, n : n + 1] = v[one, :, i : i + 1]
            past = cache.keys[one, :, : n + 1], cache.values[one, :, : n + 1]
            out[one, :, i : i + 1] = F.scaled_dot_product_attention(
                rotate(q[one, :, i : i + 1], at), *past, enable_gqa=True
            )
            cache.lengths[row] += 1
    return out


@right("mended_cache")
def with_a_softmax_of_ones_own(q, k, v, cache, counts):
    T, at = q.shape[2], cache.lengths[:, None] + torch.arange(q.shape[2])
    for row, positions in enumerate(at):
        cache.keys[row, :, positions] = rotate(k[row : row + 1], positions)[0]
        cache.values[row, :, positions] = v[row]
    cache.lengths = cache.lengths + counts
    S = int(at.max()) + 1
    seen = causal(S, S)[at].unsqueeze(1)  # [B, 1, T, S]
    assert seen.shape[2] == T
    return one_by_one(rotate(q, at), cache.keys[:, :, :S], cache.values[:, :, :S], seen)
