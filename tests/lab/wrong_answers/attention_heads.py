"""Wrong answers to the exercises of 09_attention_heads: each with the property that rejects it, and what it is told."""

import importlib
import math

import torch
import torch.nn.functional as F
from lab.registered import collection

from tinydist.attention import KVCache, bytes_a_token, rotate

WRONG_ANSWERS, wrong = collection()


def causal(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


def in_groups(H, G):
    return torch.arange(H) // (H // G)


def one_by_one(q, k, v, seen=causal, group=in_groups, scale=None, dim=-1):
    """A right one, head by head, without a copy."""
    groups = group(q.shape[1], k.shape[1]).tolist()
    scores = torch.stack([q[:, h] @ k[:, g].mT for h, g in enumerate(groups)], 1)
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    mask = seen(q.shape[2], k.shape[2]) if callable(seen) else seen
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim)
    return torch.stack([weights[:, h] @ v[:, g] for h, g in enumerate(groups)], 1)


def filled(q, k, v, fill, seen=None):
    groups = in_groups(q.shape[1], k.shape[1]).tolist()
    scores = torch.stack([q[:, h] @ k[:, g].mT for h, g in enumerate(groups)], 1) / math.sqrt(q.shape[-1])
    seen = causal(q.shape[2], k.shape[2]) if seen is None else seen
    weights = scores.masked_fill(~seen, fill).softmax(-1)
    return torch.stack([weights[:, h] @ v[:, g] for h, g in enumerate(groups)], 1)


# decode_step


def decode(q, k, v, cache, turn=0, slot=0, see=0, turn_q=True, turn_k=True, grow=1, group=in_groups, scale=None):
    """A right one; ``turn``, ``slot``, ``see`` are added to the position, the slot and the last slot that is seen."""
    n, rows = cache.lengths.clone(), torch.arange(len(q))
    q = rotate(q, n[:, None] + turn) if turn_q else q
    k = rotate(k, n[:, None] + turn) if turn_k else k
    cache.keys[rows, :, n + slot], cache.values[rows, :, n + slot] = k[:, :, 0], v[:, :, 0]
    cache.lengths += grow
    seen = torch.arange(cache.keys.shape[2]) <= n[:, None, None, None] + see
    return one_by_one(q, cache.keys, cache.values, seen, group, scale)


@wrong("decode_step", "runs", "nothing (None) came back, where a tensor like q, of shape [1, 3, 1, 4], is right")
def decodes_nothing(q, k, v, cache):
    pass


@wrong("decode_step", "own work", "you call tinydist.attention, where this is solved")
def keeps_by_the_library(q, k, v, cache):
    n = cache.lengths.clone()
    q, k = rotate(q, n[:, None]), rotate(k, n[:, None])
    theirs = KVCache(1, 1, 1, 1)
    theirs.keys, theirs.values, theirs.lengths = cache.keys, cache.values, n.tolist()
    keys, values, seen = theirs.append(k, v)
    cache.lengths += 1
    return one_by_one(q, keys, values, seen)


@wrong("decode_step", "lengths", "The next step writes over this one's token: make cache.lengths one longer.")
def forgets_to_grow(q, k, v, cache):
    return decode(q, k, v, cache, grow=0)


@wrong("decode_step", "cache", "Slots count from 0, so slot n - 1 held the last of n tokens, and is overwritten.")
def overwrites_the_last(q, k, v, cache):
    return decode(q, k, v, cache, slot=-1)


@wrong("decode_step", "cache", "Slots count from 0, so slot n is the next after n tokens, and is left out.")
def leaves_a_slot_out(q, k, v, cache):
    return decode(q, k, v, cache, slot=1, see=1)


@wrong("decode_step", "cache", "No slot has changed: write them into the cache.")
def keeps_nothing(q, k, v, cache):
    n = cache.lengths.clone()
    cache.lengths += 1
    q, k = rotate(q, n[:, None]), rotate(k, n[:, None])
    return torch.cat(
        [
            one_by_one(*(torch.cat([kept[b : b + 1, :, : n[b]], new[b : b + 1]], 2) for kept, new in pairs))
            for b, pairs in enumerate([[(q[:, :, :0], q), (cache.keys, k), (cache.values, v)]] * len(q))
        ]
    )


@wrong("decode_step", "cache", "behind the longest row's last token, not behind its own")
def all_rows_at_the_longest(q, k, v, cache):
    n, S = cache.lengths.clone(), int(cache.lengths.max())
    q, k = rotate(q, n[:, None]), rotate(k, n[:, None])
    cache.keys[:, :, S], cache.values[:, :, S] = k[:, :, 0], v[:, :, 0]
    cache.lengths += 1
    slots = torch.arange(cache.keys.shape[2])
    return one_by_one(q, cache.keys, cache.values, (slots < n[:, None, None, None]) | (slots == S))


@wrong("decode_step", "runs", "cache.keys is another tensor than before, so all of it was copied")
def concatenates(q, k, v, cache):
    n = cache.lengths.clone()
    q, k = rotate(q, n[:, None]), rotate(k, n[:, None])
    cache.keys = torch.cat([cache.keys[:, :, : n.max()], k], 2)
    cache.values = torch.cat([cache.values[:, :, : n.max()], v], 2)
    cache.lengths += 1
    slots = torch.arange(cache.keys.shape[2])
    return one_by_one(q, cache.keys, cache.values, (slots < n[:, None, None, None]) | (slots == n.max()))


@wrong("decode_step", "cache", "The key is turned to a position one too large. Positions count from 0: with n tokens")
def turns_one_too_far(q, k, v, cache):
    return decode(q, k, v, cache, turn=1)


@wrong("decode_step", "cache", "The key is not turned to its position.")
def keys_not_turned(q, k, v, cache):
    return decode(q, k, v, cache, turn_k=False)


@wrong("decode_step", "cache", "The value is turned. Only queries and keys are: what they say of positions is in the")
def values_turned(q, k, v, cache):
    return decode(q, k, rotate(v, cache.lengths[:, None]), cache)


@wrong("decode_step", "cache", "Keys stand among the values, and values among the keys.")
def keys_and_values_exchanged(q, k, v, cache):
    return decode(q, rotate(v, -cache.lengths[:, None]), rotate(k, cache.lengths[:, None]), cache)


@wrong("decode_step", "values", "The query is not turned to its position, and the keys are.")
def query_not_turned(q, k, v, cache):
    return decode(q, k, v, cache, turn_q=False)


@wrong("decode_step", "values", "The query is turned to a position one too large")
def length_before_and_after(q, k, v, cache):
    """The position is a view of the lengths, and grows with them."""
    n, rows = cache.lengths, torch.arange(len(q))
    k = rotate(k, n[:, None])
    cache.keys[rows, :, n], cache.values[rows, :, n] = k[:, :, 0], v[:, :, 0]
    cache.lengths += 1
    seen = torch.arange(cache.keys.shape[2]) < n[:, None, None, None]
    return one_by_one(rotate(q, n[:, None]), cache.keys, cache.values, seen)


@wrong("decode_step", "values", "A row reads slots behind its own last token: padding, which no token wrote. Its own")
def reads_up_to_the_longest(q, k, v, cache):
    decode(q, k, v, cache)
    S = int(cache.lengths.max())
    q = rotate(q, cache.lengths[:, None] - 1)
    return one_by_one(q, cache.keys[:, :, :S], cache.values[:, :, :S], torch.tensor(True))


@wrong("decode_step", "values", "A row reads all slots of the cache, also those that no token has written yet.")
def reads_all_slots(q, k, v, cache):
    return decode(q, k, v, cache, see=10_000)


@wrong("decode_step", "values", "A row reads one slot too many: its new token is the last that it sees.")
def reads_one_too_many(q, k, v, cache):
    return decode(q, k, v, cache, see=1)


@wrong("decode_step", "values", "The new token does not see itself: its own key is among those that it sees.")
def does_not_see_itself(q, k, v, cache):
    return decode(q, k, v, cache, see=-1)


@wrong("decode_step", "values", "Query head h reads head h % G of K and V, as with repeat; neighbors share one:")
def repeats_heads(q, k, v, cache):
    return decode(q, k, v, cache, group=lambda H, G: torch.arange(H) % G)


def kept(q, k, v, cache, longest=True):
    """All but the attention: q, turned, keys, values, and who sees whom."""
    n, rows = cache.lengths.clone(), torch.arange(len(q))
    q, k = rotate(q, n[:, None]), rotate(k, n[:, None])
    cache.keys[rows, :, n], cache.values[rows, :, n] = k[:, :, 0], v[:, :, 0]
    cache.lengths += 1
    S = int(cache.lengths.max()) if longest else cache.keys.shape[2]
    return q, cache.keys[:, :, :S], cache.values[:, :, :S], torch.arange(S) <= n[:, None, None, None]


@wrong("decode_step", "values", "What is masked gets a score that is not -inf, and is not small beside scores of")
def fills_with_100(q, k, v, cache):
    *parts, seen = kept(q, k, v, cache)
    return filled(*parts, -100.0, seen)


@wrong("decode_step", "values", "What is masked gets a score of 0, and exp(0) is 1, not nothing: -inf is.")
def masks_scores_by_product(q, k, v, cache):
    *parts, seen = kept(q, k, v, cache)
    return filled(*parts, 0.0, seen)


@wrong("decode_step", "values", "The weights are masked after the softmax, and no longer sum to 1: mask the scores,")
def masks_weights(q, k, v, cache):
    q, keys, values, seen = kept(q, k, v, cache)
    groups = in_groups(q.shape[1], k.shape[1])
    scores = torch.stack([q[:, h] @ keys[:, g].mT for h, g in enumerate(groups.tolist())], 1) / math.sqrt(q.shape[-1])
    return (scores.softmax(-1) * seen) @ values[:, groups]


@wrong("decode_step", "values", "All rows read as many slots as the shortest has tokens: each has a length of its own.")
def reads_up_to_the_shortest(q, k, v, cache):
    q, keys, values, seen = kept(q, k, v, cache)
    S = int(cache.lengths.min())
    return one_by_one(q, keys[:, :, :S], values[:, :, :S], seen[..., :S])


@wrong("decode_step", "values", "The rows come back in another order than the heads of q. A view leaves rows where")
def heads_transposed(q, k, v, cache):
    q, keys, values, seen = kept(q, k, v, cache)
    r, G = q.shape[1] // k.shape[1], k.shape[1]
    return one_by_one(q.unflatten(1, (r, G)).transpose(1, 2).flatten(1, 2), keys, values, seen)


@wrong("decode_step", "values", "q came back as it was")
def keeps_and_returns_q(q, k, v, cache):
    kept(q, k, v, cache)
    return q


@wrong("decode_step", "values", "Exp of all that is above 89 overflows float32, and of all that is below -104 it is")
def exp_without_maximum(q, k, v, cache):
    q, keys, values, seen = kept(q, k, v, cache)
    groups = in_groups(q.shape[1], k.shape[1])
    scores = torch.stack([q[:, h] @ keys[:, g].mT for h, g in enumerate(groups.tolist())], 1) / math.sqrt(q.shape[-1])
    weights = scores.exp() * seen
    return (weights / weights.sum(-1, keepdim=True)) @ values[:, groups]


@wrong("decode_step", "runs", "cache.lengths is a list now; keep it a tensor of whole numbers, of int64")
def lengths_in_a_list(q, k, v, cache):
    cache.lengths = torch.as_tensor(cache.lengths)
    out = decode(q, k, v, cache)
    cache.lengths = cache.lengths.tolist()
    return out


@wrong("decode_step", "values", "the result of step 1 [B, H, 1, d] has dtype float32, where float64 is right")
def computes_in_double(q, k, v, cache):
    q, keys, values, seen = kept(q, k, v, cache)
    return one_by_one(q.double(), keys.double(), values.double(), seen).float()


@wrong("decode_step", "memory", "There is no room for a copy of the keys. repeat_interleave, indexing by a tensor")
def computes_in_double_and_goes_back(q, k, v, cache):
    q, keys, values, seen = kept(q, k, v, cache)
    return one_by_one(q.double(), keys.double(), values.double(), seen).to(q.dtype)


@wrong("decode_step", "memory", "There is no room for a copy of the keys. repeat_interleave, indexing by a tensor,")
def keeps_the_old_caches(q, k, v, cache, kept=[]):  # noqa: B006
    kept.append(cache.keys.clone())
    return decode(q, k, v, cache)


@wrong("decode_step", "cache", "cache.keys [slots, G, d] has changed in slots [5, 6, 7], and should in [2, 3, 4]")
def one_place_for_all_rows(q, k, v, cache):
    n = int(cache.lengths.max())
    at = torch.full((len(q), 1), n)
    cache.keys[:, :, n], cache.values[:, :, n] = rotate(k, at)[:, :, 0], v[:, :, 0]
    cache.lengths += 1
    return one_by_one(rotate(q, at), cache.keys, cache.values, torch.arange(cache.keys.shape[2]) <= n)


@wrong("decode_step", "memory", "numbers are kept outside of tensors")
def copies_into_an_array(q, k, v, cache):
    past = cache.keys.numpy().copy()
    return decode(q, k, v, cache) if past.size else None


# plan_cache


def plan(
    model, tokens, gigabytes, heads=None, bits=1, size=None, layers=None, unit=2**30, GB=10**9, whole=math.floor,
    latent=None,
):  # fmt: skip
    """A right one, with options that are not; ``latent``: the numbers that a layer keeps of a token."""
    heads = model.kv_heads if heads is None else heads
    size = {"fp32": 4, "fp16": 2, "fp8": 1}[model.dtype] if size is None else size
    numbers = 2 * heads * (model.hidden // model.heads)
    if model.latent:
        numbers = model.latent + model.rotary if latent is None else latent(model)
    token = bits * (layers or model.layers) * numbers * size
    batch = whole(gigabytes * GB / (tokens * token))
    return {"bytes a token": token, "GiB a sequence": tokens * token / unit, "batch": batch}


@wrong("plan_cache", "token", "it returned nothing (None), where it should return a dict: 'bytes a token', 'GiB a")
def plans_nothing(model, tokens, gigabytes):
    pass


@wrong("plan_cache", "batch", "batch is nothing (None), where a number is right")
def no_batch(model, tokens, gigabytes):
    return {**plan(model, tokens, gigabytes), "batch": None}


@wrong("plan_cache", "own work", "you call tinydist.attention, where this is solved")
def asks_the_library(model, tokens, gigabytes):
    token = bytes_a_token(model.layers, model.kv_heads, model.hidden // model.heads)
    return {**plan(model, tokens, gigabytes), "bytes a token": token}


@wrong("plan_cache", "token", "As many numbers are counted as the queries have, model.hidden in all")
def query_heads(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, heads=model.heads)


@wrong("plan_cache", "token", "These are bits, and a byte has 8")
def bits(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, bits=8)


@wrong("plan_cache", "token", "Each layer keeps keys and values of its own")
def one_layer(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, layers=1)


@wrong("plan_cache", "token", "Each head has a part of model.hidden")
def the_whole_width_for_each_head(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, heads=model.kv_heads * model.heads)


@wrong("plan_cache", "token", "In fp16, with 16 bits a number, yours are right: model.dtype says how many it has here")
def always_two_bytes(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, size=2)


@wrong("plan_cache", "token", "1040 times too many.")
def llama_2_7b_for_all(model, tokens, gigabytes):
    return {"bytes a token": 524_288, "GiB a sequence": 2.0, "batch": 27}


@wrong("plan_cache", "sequence", "These are GB, of 10^9 bytes; a GiB has 2^30")
def in_gigabytes(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, unit=10**9)


@wrong("plan_cache", "batch", "of 2^30 bytes each; gigabytes, GB, have 10^9")
def room_in_gibibytes(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, GB=2**30)


@wrong("plan_cache", "batch", "One more than fits: round down.")
def rounds_up(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, whole=math.ceil)


@wrong("plan_cache", "batch", "A sequence fits as a whole, or it does not.")
def parts_of_sequences(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, whole=float)


@wrong("plan_cache", "batch", "Not one fits, for its cache takes more than there is: the batch is 0.")
def one_at_least(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, whole=lambda fit: max(1, math.floor(fit)))


@wrong("plan_cache", "token", "K and V have only model.kv_heads heads, of hidden / heads numbers each")
def the_width_by_heads_of_keys(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, heads=model.kv_heads * model.heads / model.kv_heads)


@wrong("plan_cache", "token", "As many numbers are counted as keys and values would have. With model.latent")
def keys_and_values_of_all(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, latent=lambda model: 2 * model.hidden)


@wrong("plan_cache", "token", "The rotary key is kept as well, beside the latent")
def latents_alone(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, latent=lambda model: model.latent)


@wrong("plan_cache", "token", "There is one latent for the key and the value, and one rotary key")
def two_of_all(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, latent=lambda model: 2 * (model.latent + model.rotary))


@wrong("plan_cache", "token", "All heads share the latent and the rotary key")
def latents_of_each_head(model, tokens, gigabytes):
    return plan(model, tokens, gigabytes, latent=lambda model: model.kv_heads * (model.latent + model.rotary))


# mended_cache


def continued(q, k, v, cache, counts, grow="counts", turn_q="own", turn_k="own", write="own", mask="own"):
    """A right one, with options that are not."""
    n, T = cache.lengths.clone(), q.shape[2]
    S = int(n.max()) + T
    own = n[:, None] + torch.arange(T)
    at = {"own": own, "longest": torch.arange(S - T, S).expand_as(own), "from 0": torch.arange(T).expand_as(own)}
    q, k = rotate(q, at[turn_q]), rotate(k, at[turn_k])
    rows = torch.arange(len(q))[:, None]
    cache.keys[rows, :, at[write]] = k.transpose(1, 2)
    cache.values[rows, :, at[write]] = v.transpose(1, 2)
    cache.lengths += {"counts": counts, "padding": T, "not": 0}[grow]
    ones = torch.ones(T, S, dtype=torch.bool)
    seen = {
        "own": torch.arange(S) <= own[:, None, :, None],
        "first": ones.tril(),
        "last": ones.tril(S - T),
        "all": ones,
    }
    keys, values = cache.keys[:, :, :S], cache.values[:, :, :S]
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen[mask], enable_gqa=True)


@wrong("mended_cache", "runs", "nothing (None) came back, where a tensor like q, of shape [1, 2, 4, 4], is right")
def mends_nothing(q, k, v, cache, counts):
    pass


@wrong("mended_cache", "own work", "you call tinydist.attention, where this is solved; mend what is given")
def appends_by_the_library(q, k, v, cache, counts):
    n = cache.lengths[:, None] + torch.arange(q.shape[2])
    theirs = KVCache(1, 1, 1, 1)
    theirs.keys, theirs.values, theirs.lengths = cache.keys, cache.values, cache.lengths.tolist()
    keys, values, seen = theirs.append(rotate(k, n), v, counts.tolist())
    cache.lengths += counts
    return F.scaled_dot_product_attention(rotate(q, n), keys, values, attn_mask=seen, enable_gqa=True)


@wrong("mended_cache", "lengths", "Padding is counted. Of row b only the first counts[b] tokens are real.")
def mends_the_mask_alone(q, k, v, cache, counts):
    return continued(q, k, v, cache, counts, grow="padding", turn_q="longest", turn_k="longest")


@wrong("mended_cache", "cache", "Queries and keys are turned to the longest row's positions: row b has n[b] tokens,")
def leaves_the_longest_position(q, k, v, cache, counts):
    return continued(q, k, v, cache, counts, turn_q="longest", turn_k="longest")


@wrong("mended_cache", "cache", "The tokens of each call are turned to positions from 0 on, but stand behind those")
def each_piece_from_position_0(q, k, v, cache, counts):
    return continued(q, k, v, cache, counts, turn_q="from 0", turn_k="from 0")


@wrong("mended_cache", "cache", "Keys and values are written behind the longest row's last token: row b's next slot")
def writes_at_the_longest(q, k, v, cache, counts):
    return continued(q, k, v, cache, counts, write="longest")


@wrong("mended_cache", "values", "Keys are turned to their row's positions, and queries to the longest row's.")
def mends_the_keys_alone(q, k, v, cache, counts):
    return continued(q, k, v, cache, counts, turn_q="longest")


@wrong("mended_cache", "values", "is_causal=True puts the first query beside the first key")
def leaves_is_causal(q, k, v, cache, counts):
    return continued(q, k, v, cache, counts, mask="first")


@wrong("mended_cache", "values", "A query sees up to the longest row's last key, in all rows: in a shorter one that is")
def mask_beside_the_longest(q, k, v, cache, counts):
    return continued(q, k, v, cache, counts, mask="last")


@wrong("mended_cache", "values", "A query sees tokens after itself, which came with it")
def drops_is_causal(q, k, v, cache, counts):
    return continued(q, k, v, cache, counts, mask="all")


@wrong(
    "mended_cache",
    "lengths",
    "1 of 3 numbers of cache.lengths after call 2 is wrong. The first is at position 1: 4, where 3",
)
def a_token_at_least(q, k, v, cache, counts):
    return continued(q, k, v, cache, counts.clamp(min=1))


# latent_attention


def parts_of(q, rows, up, r):
    """Queries and their rotary part; latents and rotary keys; of each head, what makes keys and values."""
    d = q.shape[-1] - r
    return q[..., :d], q[..., d:], rows[:, None, :, :-r], rows[:, None, :, -r:], up[:, :d], up[:, d:]


def over_latents(q, rows, up, r, absorbs=None, scale=None, seen=causal, dim=-1, hidden=-math.inf, rotary=True):
    """A right one; ``absorbs``: always or never, in place of what is cheaper."""
    T, S, (_, more, c) = q.shape[2], rows.shape[1], up.shape
    if absorbs is None:
        absorbs = T * S * (2 * c - more) < (S - T) * c * more
    contents, turned, latents, keys, of_keys, of_values = parts_of(q, rows, up, r)
    scores = (contents @ of_keys) @ latents.mT if absorbs else contents @ (latents @ of_keys.mT).mT
    scores = scores + turned @ keys.mT if rotary else scores
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    weights = scores.masked_fill(~seen(T, S), hidden).softmax(dim)
    return weights @ latents @ of_values.mT if absorbs else weights @ (latents @ of_values.mT)


@wrong("latent_attention", "values", "the result is nothing (None), where a tensor of shape [1, 1, 1, 3] is right")
def attends_to_nothing(q, rows, up, r):
    pass


@wrong("latent_attention", "own work", "you call torch's scaled_dot_product_attention, where this is solved")
def makes_all_and_calls_torch(q, rows, up, r):
    _, _, latents, keys, of_keys, of_values = parts_of(q, rows, up, r)
    made, heads = latents @ of_keys.mT, up.shape[0]
    made = torch.cat([made, keys.expand(-1, heads, -1, -1)], -1)
    mask = causal(q.shape[2], rows.shape[1])
    return F.scaled_dot_product_attention(q, made, latents @ of_values.mT, attn_mask=mask)


@wrong("latent_attention", "own work", "you call tinydist.attention, where this is solved")
def by_the_librarys_attention(q, rows, up, r):
    contents, turned, latents, _, of_keys, of_values = parts_of(q, rows, up, r)
    short = torch.cat([contents @ of_keys, turned], -1)
    theirs = importlib.import_module("tinydist.attention").attention
    mixed = theirs(short, rows[:, None], latents, causal=True, scale=q.shape[-1] ** -0.5)
    return mixed @ of_values.mT


@wrong("latent_attention", "FLOPs", "All keys and values of the past are made, for few queries.")
def always_made(q, rows, up, r):
    return over_latents(q, rows, up, r, absorbs=False)


@wrong("latent_attention", "FLOPs", "The queries absorb the matrix where there are about as many as keys.")
def always_absorbed(q, rows, up, r):
    return over_latents(q, rows, up, r, absorbs=True)


@wrong("latent_attention", "FLOPs", "Whether there is a past does not decide it alone")
def absorbed_behind_any_past(q, rows, up, r):
    return over_latents(q, rows, up, r, absorbs=q.shape[2] < rows.shape[1])


@wrong("latent_attention", "FLOPs", "Queries absorb the matrix only where there is one of them.")
def absorbed_by_one_query_alone(q, rows, up, r):
    return over_latents(q, rows, up, r, absorbs=q.shape[2] == 1 and rows.shape[1] > 1)


@wrong("latent_attention", "FLOPs", "Keys are absorbed, and values are made")
def values_are_made(q, rows, up, r):
    contents, turned, latents, keys, of_keys, of_values = parts_of(q, rows, up, r)
    T, S, (_, more, c) = q.shape[2], rows.shape[1], up.shape
    if T * S * (2 * c - more) >= (S - T) * c * more:
        return over_latents(q, rows, up, r)
    scores = ((contents @ of_keys) @ latents.mT + turned @ keys.mT) / q.shape[-1] ** 0.5
    return scores.masked_fill(~causal(T, S), -math.inf).softmax(-1) @ (latents @ of_values.mT)


@wrong("latent_attention", "FLOPs", "multiply matrices of torch, with @ or einsum, where they can be counted")
def products_and_sums(q, rows, up, r):
    contents, turned, latents, keys, of_keys, of_values = parts_of(q, rows, up, r)

    def product(a, b):
        return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)

    made, values = product(latents, of_keys.mT), product(latents, of_values.mT)
    scores = (product(contents, made.mT) + product(turned, keys.mT)) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~causal(q.shape[2], rows.shape[1]), -math.inf).softmax(-1)
    return product(weights, values)


@wrong("latent_attention", "values", "The position is missing. A score has a second part")
def without_positions_in_the_scale(q, rows, up, r):
    return over_latents(q, rows, up, r, rotary=False, scale=(q.shape[-1] - r) ** -0.5)


@wrong("latent_attention", "values", "The rotary part stands last, in q and in rows")
def rotary_part_first(q, rows, up, r):
    return over_latents(q.roll(-r, -1), rows.roll(-r, -1), up, r)


@wrong("latent_attention", "FLOPs", "Whether there is a past does not decide it alone: with many queries behind it")
def absorbed_where_the_past_is_long(q, rows, up, r):
    return over_latents(q, rows, up, r, absorbs=q.shape[2] < rows.shape[1] // 2)


@wrong("latent_attention", "values", "The position is missing: a score has a second part")
def without_positions(q, rows, up, r):
    return over_latents(q, rows, up, r, rotary=False)


@wrong("latent_attention", "values", "The scores are divided by sqrt(d). A key has d + r numbers")
def scaled_by_the_contents(q, rows, up, r):
    return over_latents(q, rows, up, r, scale=(q.shape[-1] - r) ** -0.5)


@wrong("latent_attention", "values", "The scores are divided by sqrt(c + r), the length of what is multiplied")
def scaled_by_the_row(q, rows, up, r):
    return over_latents(q, rows, up, r, scale=rows.shape[-1] ** -0.5)


@wrong("latent_attention", "values", "One part of a score is divided by sqrt(d + r), and the other is not")
def rotary_part_not_scaled(q, rows, up, r):
    d = q.shape[-1] - r
    return over_latents(torch.cat([q[..., :d], q[..., d:] * q.shape[-1] ** 0.5], -1), rows, up, r)


@wrong("latent_attention", "values", "The scores are not scaled")
def latents_not_scaled(q, rows, up, r):
    return over_latents(q, rows, up, r, scale=1)


@wrong("latent_attention", "values", "Of a head's matrix the first d rows make its key and the others its value")
def values_before_keys(q, rows, up, r):
    d = q.shape[-1] - r
    return over_latents(q, rows, torch.cat([up[:, -d:], up[:, :-d]], 1), r)


@wrong("latent_attention", "values", "All heads use the matrix of head 0")
def one_matrix_for_all(q, rows, up, r):
    return over_latents(q, rows, up[:1].expand_as(up), r)


@wrong("latent_attention", "values", "The mask is missing: a query sees keys after itself.")
def latents_unmasked(q, rows, up, r):
    return over_latents(q, rows, up, r, seen=lambda T, S: torch.ones(T, S, dtype=torch.bool))


@wrong("latent_attention", "values", "A query does not see its own token")
def own_latent_not_seen(q, rows, up, r):
    return over_latents(q, rows, up, r, seen=lambda T, S: torch.ones(T, S, dtype=torch.bool).tril(S - T - 1))


@wrong("latent_attention", "values", "The first query stands beside the first key. But with fewer queries than keys")
def beside_the_first_latent(q, rows, up, r):
    return over_latents(q, rows, up, r, seen=lambda T, S: torch.ones(T, S, dtype=torch.bool).tril())


@wrong("latent_attention", "values", "Softmax runs over the queries: the weights of one query are to sum to 1")
def softmax_down_the_queries(q, rows, up, r):
    return over_latents(q, rows, up, r, dim=-2)


@wrong("latent_attention", "values", "no finite number is small beside all scores")
def hidden_by_a_billion(q, rows, up, r):
    return over_latents(q, rows, up, r, hidden=-1e9)


@wrong("latent_attention", "values", "What is masked gets a score of 0, and exp(0) is 1, not nothing: -inf is.")
def hidden_by_zero(q, rows, up, r):
    return over_latents(q, rows, up, r, hidden=0.0)


@wrong("latent_attention", "values", "the result has dtype float32, where float64 is right")
def latents_in_float32(q, rows, up, r):
    return over_latents(q.float(), rows.float(), up.float(), r)


@wrong("latent_attention", "values", "q has changed: it belongs to the caller")
def scales_its_queries_in_place(q, rows, up, r):
    q /= q.shape[-1] ** 0.5
    return over_latents(q, rows, up, r, scale=1)


@wrong("mended_cache", "values", "A query sees up to the longest row's last key, in all rows")
def no_mask_for_one_token(q, k, v, cache, counts):
    return continued(q, k, v, cache, counts, mask="all" if q.shape[2] == 1 else "own")


@wrong("mended_cache", "values", "A query sees tokens after itself, which came with it")
def all_that_the_row_has(q, k, v, cache, counts):
    """Of the same call, too."""
    n, T = cache.lengths.clone(), q.shape[2]
    own = n[:, None] + torch.arange(T)
    rows = torch.arange(len(q))[:, None]
    cache.keys[rows, :, own] = rotate(k, own).transpose(1, 2)
    cache.values[rows, :, own] = v.transpose(1, 2)
    cache.lengths += counts
    S = int(n.max()) + T
    seen = (torch.arange(S) < cache.lengths[:, None]).view(len(q), 1, 1, S)
    keys, values = cache.keys[:, :, :S], cache.values[:, :, :S]
    return F.scaled_dot_product_attention(rotate(q, own), keys, values, attn_mask=seen, enable_gqa=True)


@wrong("decode_step", "values", "n is cache.lengths itself, and grows with it before the mask is made")
def lengths_that_grow_too_early(q, k, v, cache):
    (B, H, _, d), G, n = q.shape, k.shape[1], cache.lengths
    q, k = rotate(q, n[:, None]), rotate(k, n[:, None])
    rows = torch.arange(B)
    cache.keys[rows, :, n], cache.values[rows, :, n] = k[:, :, 0], v[:, :, 0]
    n += 1
    S = int(n.max())
    scores = (q.view(B, G, H // G, d) / math.sqrt(d) @ cache.keys[:, :, :S].mT).view(B, H, 1, S)
    weights = scores.masked_fill(torch.arange(S) > n[:, None, None, None], -math.inf).softmax(-1)
    return (weights.view(B, G, H // G, S) @ cache.values[:, :, :S]).view(B, H, 1, d)
