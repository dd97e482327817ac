"""Wrong answers to the exercises of 09_attention_heads: each with the property that rejects it, and what it is told."""

import math

import torch
from lab.registered import collection, solved

from tinydist.attention import KVCache, WindowKVCache, bytes_per_token, rotate

WRONG_ANSWERS, wrong = collection()


# decode_step


@wrong("decode_step", "own work", "tinydist.attention")
def keeps_by_the_library(q, k, v, cache):
    KVCache(1, 1, 1, 1)
    return solved("decode_step")(q, k, v, cache)


@wrong("decode_step", "lengths", "1 of 1 numbers")
def forgets_to_grow(q, k, v, cache):
    result = solved("decode_step")(q, k, v, cache)
    cache.lengths -= 1
    return result


@wrong("decode_step", "values", "0 times NaN is NaN")
def lets_nan_of_unused_slots_through(q, k, v, cache):
    """With a mask on the scores of all slots."""
    (B, H, _, d), G, n, rows = q.shape, k.shape[1], cache.lengths.clone(), torch.arange(len(q))
    q, k = rotate(q, n[:, None]), rotate(k, n[:, None])
    cache.keys[rows, :, n], cache.values[rows, :, n] = k[:, :, 0], v[:, :, 0]
    cache.lengths += 1
    scores = (q.view(B, G, H // G, d) / math.sqrt(d) @ cache.keys.mT).view(B, H, 1, -1)
    unseen = torch.arange(scores.shape[-1]) > n[:, None, None, None]
    weights = scores.masked_fill(unseen, -math.inf).softmax(-1)
    return (weights.view(B, G, H // G, -1) @ cache.values).view(B, H, 1, d)


@wrong("decode_step", "values", "has dtype float32")
def computes_in_double(*arguments):
    return solved("decode_step")(*arguments).float()


@wrong("decode_step", "memory", "numbers are kept outside of tensors")
def copies_into_an_array(q, k, v, cache):
    past = cache.keys.numpy().copy()
    return solved("decode_step")(q, k, v, cache) if past.size else None


# plan_cache


@wrong("plan_cache", "token", "nothing (None)")
def plans_nothing(model, tokens, gigabytes):
    pass


@wrong("plan_cache", "own work", "tinydist.attention")
def asks_the_library(model, tokens, gigabytes):
    token = bytes_per_token(model.layers, model.kv_heads, model.hidden // model.heads)
    return {**solved("plan_cache")(model, tokens, gigabytes), "bytes of the next token": token}


@wrong("plan_cache", "token", "1040 times too many.")
def llama_2_7b_for_all(model, tokens, gigabytes):
    return {"bytes of the next token": 524_288, "GiB a sequence": 2.0, "batch": 27}


@wrong("plan_cache", "batch", "Llama 3.1 405B, 131,072 tokens")
def one_at_least(*given):
    found = solved("plan_cache")(*given)
    return found | {"batch": max(1, found["batch"])}


@wrong("plan_cache", "token", "windows that are just full")
def grows_when_the_window_is_full(model, tokens, gigabytes):
    edited = solved("plan_cache", "tokens < model.window else", "tokens <= model.window else")
    return edited(model, tokens, gigabytes)


# window_step


@wrong("window_step", "values", "overflows, and of a low one is 0")
def without_the_largest_score(*arguments):
    means = "(scores.exp() / scores.exp().sum(-1, keepdim=True) @ values)"
    return solved("window_step", "(scores.softmax(-1) @ values)", means)(*arguments)


@wrong("window_step", "own work", "tinydist.attention")
def rings_by_the_library(*arguments):
    WindowKVCache(1, 1, 1, 1)
    return solved("window_step")(*arguments)


@wrong("window_step", "cache", "row 0 of cache.keys")
def moves_all_and_appends(q, k, v, cache):
    """As a list that drops its first."""
    n, window = cache.lengths.clone(), cache.keys.shape[2]
    result = solved("window_step")(q, k, v, cache)
    for row in (n >= window).nonzero().flatten().tolist():
        for each in (cache.keys, cache.values):
            each[row] = each[row].roll(-int(n[row] % window) - 1, dims=1)
    return result


@wrong("window_step", "memory", "There is no room for a copy of the keys")
def gathers_the_ring_in_order(q, k, v, cache):
    result = solved("window_step")(q, k, v, cache)
    window = cache.keys.shape[2]
    order = (cache.lengths[:, None] + torch.arange(window)) % window
    return result + 0 * cache.keys[torch.arange(len(q))[:, None], :, order].nan_to_num().sum()


# rotate_longer


@wrong("rotate_longer", "rotated", "nothing (None)")
def rotates_nothing(*arguments):
    pass


@wrong("rotate_longer", "own work", "tinydist.attention")
def rotates_by_the_library(x, positions, *others):
    rotate(x, positions)
    return solved("rotate_longer")(x, positions, *others)


@wrong("rotate_longer", "rotated", "fast, slow, and in between")
def positions_are_divided(x, positions, base, trained, factor):
    plain = solved("rotate_longer")(x, positions / factor, base, trained, 1.0)
    return plain | {"scale": solved("rotate_longer")(x, positions, base, trained, factor)["scale"]}


@wrong("rotate_longer", "rotated", "fast, slow, and in between")
def a_larger_base(x, positions, base, trained, factor):
    """As the NTK-aware method does."""
    d = x.shape[-1]
    larger = base * factor ** (d / max(d - 2, 1))
    plain = solved("rotate_longer")(x, positions, larger, trained, 1.0)
    return plain | {"scale": solved("rotate_longer")(x, positions, base, trained, factor)["scale"]}


@wrong("rotate_longer", "rotated", "positions beyond training")
def slowed_only_beyond_training(x, positions, base, trained, factor):
    found = solved("rotate_longer")(x, positions, base, trained, factor)
    if positions.max() < trained:
        return found
    return found | {"rotated": solved("rotate_longer")(x, positions, base, trained, 1.0)["rotated"]}


# mended_cache


@wrong("mended_cache", "runs", "nothing (None)")
def mends_nothing(q, k, v, cache, counts):
    pass


@wrong("mended_cache", "own work", "tinydist.attention")
def appends_by_the_library(*arguments):
    KVCache(1, 1, 1, 1)
    return solved("mended_cache")(*arguments)


@wrong("mended_cache", "lengths", "prompts of 1, 3 and 2 tokens")
def a_token_at_least(q, k, v, cache, counts):
    return solved("mended_cache")(q, k, v, cache, counts.clamp(min=1))
