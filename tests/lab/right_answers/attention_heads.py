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
    """``cache.lengths`` is a new tensor; rows of equal lengths are read together, in one call."""
    (B, G, _, d), n = k.shape, cache.lengths
    place = n[:, None, None, None].expand(B, G, 1, d)
    cache.keys.scatter_(2, place, rotate(k, n[:, None]))
    cache.values.scatter_(2, place, v)
    cache.lengths = n + 1
    queries, results = rotate(q, n[:, None]).view(B, G, -1, d), []
    for row, end in enumerate(cache.lengths.tolist()):
        keys, values = cache.keys[row, :, :end], cache.values[row, :, :end]
        weights = (torch.einsum("grd,gsd->grs", queries[row], keys) / d**0.5).softmax(-1)
        results.append(torch.einsum("grs,gsd->grd", weights, values).reshape(1, -1, 1, d))
    return torch.cat(results)


@right("window_step")
def ring_row_by_row(q, k, v, cache):
    window, outs = cache.keys.shape[2], []
    for row, n in enumerate(cache.lengths.tolist()):
        at, mine = torch.tensor([n]), slice(row, row + 1)
        cache.keys[mine, :, n % window] = rotate(k[mine], at)[:, :, 0]
        cache.values[mine, :, n % window] = v[mine, :, 0]
        used = cache.keys[mine, :, : n + 1], cache.values[mine, :, : n + 1]  # a slice ends where the ring does
        outs.append(one_by_one(rotate(q[mine], at), *used, torch.tensor(True)))
    cache.lengths += 1
    return torch.cat(outs)


@right("window_step")
def ring_by_torchs_remainder(q, k, v, cache):
    """Written by scatter; ``cache.lengths`` is a new tensor."""
    (B, G, _, d), n = k.shape, cache.lengths
    window = cache.keys.shape[2]
    place = n.remainder(window)[:, None, None, None].expand(B, G, 1, d)
    cache.keys.scatter_(2, place, rotate(k, n[:, None]))
    cache.values.scatter_(2, place, v)
    cache.lengths = n + 1
    queries, results = rotate(q, n[:, None]), []
    for row, used in enumerate(cache.lengths.clamp(max=window).tolist()):
        mine = slice(row, row + 1)
        keys, values = cache.keys[mine, :, :used], cache.values[mine, :, :used]
        results.append(one_by_one(queries[mine], keys, values, torch.tensor(True)))
    return torch.cat(results)


def layers_of(model):
    """Of each layer the window, or None."""
    every = model.every if model.window else 1
    return [None if (layer + 1) % every == 0 else model.window for layer in range(model.layers)]


@right("plan_cache")
def layer_by_layer(model, tokens, gigabytes):
    bits = int(model.dtype[2:])
    of_token = 2 * model.kv_heads * (model.hidden // model.heads) * bits // 8
    kept = [[n if window is None else min(n, window) for window in layers_of(model)] for n in (tokens, tokens + 1)]
    sequence, longer = (sum(each) * of_token for each in kept)
    batch = math.floor(gigabytes * 1e9 / sequence)
    return {"bytes of the next token": longer - sequence, "GiB a sequence": sequence / 1024**3, "batch": batch}


@right("plan_cache")
def with_fractions(model, tokens, gigabytes):
    size = {"fp32": 4, "fp16": 2}.get(model.dtype, 1)
    of_token = 2 * Fraction(model.hidden * model.kv_heads, model.heads) * size
    windows = layers_of(model)
    sequence = sum(tokens if window is None else min(tokens, window) for window in windows) * of_token
    growing = sum(window is None or tokens < window for window in windows)
    batch = int(Fraction(gigabytes) * 10**9 / sequence)
    found = {"batch": batch, "GiB a sequence": float(sequence / 2**30)}
    return found | {"bytes of the next token": int(growing * of_token)}


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
