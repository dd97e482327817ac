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


# flash_row


@wrong("flash_row", "values", "4 queries from position 4")
def visits_all_tiles(*given):
    return solved("flash_row", "min(len(k), start + len(q))", "len(k)")(*given)


@wrong("flash_row", "memory", "besides its arguments")
def all_scores_at_once(q, k, v, start, tile):
    seen = start + len(q)
    return solved("flash_row")(q, k[:seen], v[:seen], start, seen)


@wrong("flash_row", "values", "4 queries from position 8")
def begins_with_a_maximum_of_0(*given):
    return solved("flash_row", "torch.full((len(q), 1), -math.inf)", "torch.zeros(len(q), 1)")(*given)


def of_numpy(q, k, v, offset):
    p = numpy.arange(len(q))[:, None] + offset
    q, k, v = (each.numpy() for each in (q, k, v))
    scores = numpy.where(numpy.arange(len(k)) <= p, q @ k.T / math.sqrt(q.shape[1]), -INF)
    highest = scores.max(1, keepdims=True).clip(min=LOWEST)
    weights = numpy.exp(scores - highest)
    total = weights.sum(1, keepdims=True)
    return weights @ v / total.clip(min=1), (highest + numpy.log(total.clip(min=1)))[:, 0]


@wrong("flash_row", "visits", "NumPy")
def with_numpy(q, k, v, start, tile):
    seen = slice(0, start + len(q))
    return tuple(map(torch.from_numpy, of_numpy(q, k[seen], v[seen], start)))


@wrong("flash_row", "own work", "scaled_dot_product_attention")
def a_mask_that_torch_refuses(q, k, v, start, tile):
    seen = torch.arange(len(k)) <= torch.arange(start, start + len(q))[:, None]
    output = F.scaled_dot_product_attention(q, k, v, attn_mask=seen.long())
    return output, (q @ k.T).logsumexp(1)


# flash_column


@wrong("flash_column", "own work", "scaled_dot_product_attention")
def torchs_gradient(k, v, q, *others):
    F.scaled_dot_product_attention(q[None], k[None], v[None])
    return solved("flash_column")(k, v, q, *others)


@wrong("flash_column", "values", "4 keys from position 32")
def begins_at_the_first_query(*given):
    return solved("flash_column", "range(start // tile * tile,", "range(0,")(*given)


@wrong("flash_column", "memory", "holds 17,696 bytes")
def all_weights_at_once(k, v, q, dout, lse, delta, start, tile):
    return solved("flash_column")(k, v, q, dout, lse, delta, start, len(q) if start == 0 else tile)


@wrong("flash_column", "values", "4 keys from position 4")
def hides_weights(*given):
    hidden = "(scores.masked_fill(hidden, -math.inf) - lse[rows, None]).exp()"
    return solved("flash_column", hidden, "(scores - lse[rows, None]).exp() * ~hidden")(*given)


@wrong("flash_column", "visits", "NumPy")
def by_sums(k, v, q, dout, lse, delta, start, tile):
    own = slice(start // tile * tile, None)
    q, dout, lse, delta = (each[own] for each in (q, dout, lse, delta))
    p = torch.arange(own.start, own.start + len(q))[:, None]
    scores = (q[:, None] * k).sum(2) / math.sqrt(q.shape[1])
    w = (scores.masked_fill(torch.arange(start, start + len(k)) > p, -INF) - lse[:, None]).exp()
    ds = w * ((dout[:, None] * v).sum(2) - delta[:, None])
    return (ds[..., None] * q[:, None]).sum(0) / math.sqrt(q.shape[1]), (w[..., None] * dout[:, None]).sum(0)


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
