"""Wrong answers to the exercises of 10_flash_attention: each with the property that rejects it, and what it is told."""

import math

import numpy
import torch
import torch.nn.functional as F
from lab.registered import collection, solved
from torch.nn.attention import bias
from torch.nn.functional import scaled_dot_product_attention

from tinydist.attention import online_softmax

WRONG_ANSWERS, wrong = collection()
INF = math.inf
LOWEST = torch.finfo(torch.float32).min


# merge_states


@wrong("merge_states", "own work", "tinydist.attention")
def librarys_own(a, b):
    parts = (online_softmax.SoftmaxState(lse[:, None], torch.ones(len(lse), 1), out) for out, lse in (a, b))
    out, lse = online_softmax.finish(online_softmax.merge(*parts))
    return out, lse.squeeze(1)


COMMON = "torch.logaddexp(a_lse, b_lse)"


@wrong("merge_states", "values", "two pairs, lse of a near 300")
def exponentials_as_they_are(a, b):
    return solved("merge_states", COMMON, "(a_lse.exp() + b_lse.exp()).log()")(a, b)


@wrong("merge_states", "values", "lse near -300")
def lse_from_minus_100_on(a, b):
    low = "torch.maximum(a_lse, b_lse).clamp(min=-100)"
    edit = f"((a_lse - {low}).exp() + (b_lse - {low}).exp()).log() + {low}"
    return solved("merge_states", COMMON, edit)(a, b)


@wrong("merge_states", "any order", "out from the left")
def leaves_out_a_part_below_a_thousandth(a, b):
    a, b = ((out, lse.masked_fill(lse < other - 7, -INF)) for (out, lse), other in ((a, b[1]), (b, a[1])))
    return solved("merge_states")(a, b)


@wrong("merge_states", "values", "two pairs, of many queries")
def a_mean_of_those_alike(a, b):
    out, lse = solved("merge_states")(a, b)
    return torch.where((a[1] - b[1]).abs()[:, None] < 0.1, (a[0] + b[0]) / 2, out), lse


def of_numpy(q, k, v, offset):
    p = numpy.arange(len(q))[:, None] + offset
    q, k, v = (each.numpy() for each in (q, k, v))
    scores = numpy.where(numpy.arange(len(k)) <= p, q @ k.T / math.sqrt(q.shape[1]), -INF)
    highest = scores.max(1, keepdims=True).clip(min=LOWEST)
    weights = numpy.exp(scores - highest)
    total = weights.sum(1, keepdims=True)
    return weights @ v / total.clip(min=1), (highest + numpy.log(total.clip(min=1)))[:, 0]


# padded_or_packed


@wrong("padded_or_packed", "padded", "it returned nothing (None)")
def costs_nothing(lengths, tile, d):
    pass


def costs(label, rejected_by, told, *edits):
    WRONG_ANSWERS.append((f"padded_or_packed-{label}", solved("padded_or_packed", *edits), rejected_by, told))


costs("tiles_rounded_down", "padded", "5, 3, 9, 1, 6 tokens", "math.ceil(longest / tile)", "longest // tile")
costs("all_of_the_row", "packed", "the causal mask of the whole row", "start // tile", "0")
costs("forward_and_backward", "moved", "and that is not right", "4 * 2 * len", "11 * 2 * len")
costs("keeps_the_padding", "kept", "12, 4, 8 tokens", "kept = tokens", "kept = len(lengths) * longest")


# flash_row


@wrong("flash_row", "visits", "the scores of several tiles are made at once")
def all_keys_at_once(q, k, v, start, tile, window, sink):
    return solved("flash_row")(q, k, v, start, len(k), window, sink)


@wrong("flash_row", "visits", "the scores of several tiles are made at once")
def all_seen_keys_at_once(q, k, v, start, tile, window, sink):
    seen = start + len(q)
    return solved("flash_row")(q, k[:seen], v[:seen], start, seen, window, sink)


@wrong("flash_row", "values", "scores and sink near -2048")
def begins_with_a_maximum_of_0(q, k, v, start, tile, window, sink):
    begin = "torch.full((len(q), 1), sink), torch.ones(len(q), 1)"
    edit = "torch.zeros(len(q), 1), torch.full((len(q), 1), math.exp(sink))"
    return solved("flash_row", begin, edit)(q, k, v, start, tile, window, sink)


@wrong("flash_row", "visits", "NumPy")
def with_numpy(q, k, v, start, tile, window, sink):
    far = numpy.arange(start, start + len(q))[:, None] - numpy.arange(len(k))
    queries, keys, values = (each.numpy() for each in (q, k, v))
    scores = numpy.where((far >= 0) & (far < window), queries @ keys.T / math.sqrt(q.shape[1]), -INF)
    highest = numpy.maximum(scores.max(1, keepdims=True), sink)
    weights = numpy.exp(scores - highest)
    total = weights.sum(1, keepdims=True) + numpy.exp(sink - highest)
    found = weights @ values / total, (highest + numpy.log(total))[:, 0]
    return tuple(torch.from_numpy(each).float() for each in found)


@wrong("flash_row", "own work", "scaled_dot_product_attention")
def a_mask_that_torch_refuses(q, k, v, start, tile, window, sink):
    seen = torch.arange(len(k)) <= torch.arange(start, start + len(q))[:, None]
    output = F.scaled_dot_product_attention(q, k, v, attn_mask=seen.long())
    return output, (q @ k.T).logsumexp(1)


# flash_column


@wrong("flash_column", "own work", "scaled_dot_product_attention")
def torchs_gradient(k, v, q, *others):
    F.scaled_dot_product_attention(q[0][None], k[None], v[None])
    return solved("flash_column")(k, v, q, *others)


@wrong("flash_column", "visits", "4 keys from position 4")
def begins_at_the_first_query(*given):
    return solved("flash_column", "range(start // tile * tile,", "range(0,")(*given)


@wrong("flash_column", "visits", "the scores of several tiles are made at once")
def all_weights_at_once(k, v, q, dout, lse, delta, start, tile, window):
    return solved("flash_column")(k, v, q, dout, lse, delta, start, q.shape[1], window)


@wrong("flash_column", "values", "4 keys from position 4")
def hides_weights(*given):
    hidden = "(scores.masked_fill(hidden, -math.inf) - lse[head, rows, None]).exp()"
    return solved("flash_column", hidden, "(scores - lse[head, rows, None]).exp() * ~hidden")(*given)


@wrong("flash_column", "values", "heads")
def the_mean_of_the_heads(k, v, q, *others):
    return tuple(each / len(q) for each in solved("flash_column")(k, v, q, *others))


# mended_flash


@wrong("mended_flash", "memory", "holds 15,424 bytes")
def a_row_of_scores(q, k, v, tile):
    out = []
    for start in range(0, len(q), tile):
        queries = q[start : start + tile]
        seen = max(0, min(len(k), start + len(queries) + len(k) - len(q)))
        scores = queries @ k[:seen].T / math.sqrt(q.shape[1])
        p = torch.arange(start, start + len(queries))[:, None] + len(k) - len(q)
        scores = scores.masked_fill(torch.arange(seen) > p, -INF)
        out.append(scores.softmax(1).nan_to_num() @ v[:seen])
    return torch.cat(out)


LOW = "torch.finfo(highest.dtype).min"


@wrong("mended_flash", "values", "8 queries, 8 keys")
def finite_from_minus_100_on(*given):
    return solved("mended_flash", LOW, "-100")(*given)


@wrong("mended_flash", "values", "9 queries, 9 keys")
def nan_to_num_at_the_end(*given):
    return solved(
        "mended_flash", f".clamp(min={LOW})", "", ".clamp(min=1)", "", "return out", "return out.nan_to_num()"
    )(*given)


@wrong("mended_flash", "visits", "NumPy")
def naive_in_numpy(q, k, v, tile):
    out = []
    for first in range(0, len(q), tile):
        queries, start = q[first : first + tile], first + len(k) - len(q)
        seen = slice(0, max(1, start + len(queries)))
        out.append(torch.from_numpy(of_numpy(queries, k[seen], v[seen], start)[0]))
    return torch.cat(out)


@wrong("mended_flash", "own work", "torch.nn.attention")
def with_torchs_mask(q, k, v, tile):
    mask = bias.causal_lower_right(len(q), len(k))
    return scaled_dot_product_attention(q[None], k[None], v[None], mask)[0].nan_to_num()
