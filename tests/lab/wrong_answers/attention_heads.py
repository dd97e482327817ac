"""Wrong answers to the exercises of 09_attention_heads: each with the property that rejects it, and what it is told."""

import math

import torch
import torch.nn.functional as F
from lab.registered import collection, solved

from tinydist.attention import KVCache, bytes_per_token

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


@wrong("decode_step", "values", "rows of 2, 5 and 0 tokens")
def fills_with_100(*arguments):
    return solved("decode_step", "-math.inf", "-100.0")(*arguments)


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
    return {**solved("plan_cache")(model, tokens, gigabytes), "bytes a token": token}


@wrong("plan_cache", "token", "1040 times too many.")
def llama_2_7b_for_all(model, tokens, gigabytes):
    return {"bytes a token": 524_288, "GiB a sequence": 2.0, "batch": 27}


@wrong("plan_cache", "batch", "Llama 3.1 405B, 131,072 tokens")
def one_at_least(*given):
    found = solved("plan_cache")(*given)
    return found | {"batch": max(1, found["batch"])}


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
