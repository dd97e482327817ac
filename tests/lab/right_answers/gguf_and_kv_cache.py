"""Other right answers to the exercises of 21b_gguf_and_kv_cache: they must pass."""

import itertools

import torch
from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("choose_formats")
def all_pairs_sorted(weights, per_token, context, memory, bandwidth, weight_formats, cache_formats):
    pairs = []
    for weight, cache in itertools.product(weight_formats, cache_formats):
        nbytes = weights * weight_formats[weight][0] / 8 + per_token * context * cache_formats[cache][0] / 8
        if nbytes <= memory:
            pairs.append((weight_formats[weight][1] + cache_formats[cache][1], nbytes, weight, cache))
    if pairs:
        _, nbytes, weight, cache = sorted(pairs)[0]
        return weight, cache, bandwidth / nbytes
    return None


@right("rows_for_llama_cpp")
def row_by_row(query, key, value, heads, kv_heads):
    """A list of the rows, one head after the other."""
    head_dim = len(query) // heads

    def order(heads):
        rows = []
        for head in range(heads):
            for i in range(head_dim // 2):
                rows += [head * head_dim + i, head * head_dim + i + head_dim // 2]
        return rows

    return query[order(heads)], key[order(kv_heads)], value.clone()


@right("rows_for_llama_cpp")
def written_to_their_places(query, key, value, heads, kv_heads):
    found = []
    for weight, n in ((query, heads), (key, kv_heads)):
        halves = weight.view(n, 2, -1, weight.shape[1])
        into = torch.empty_like(weight).view(n, -1, 2, weight.shape[1])
        into[:, :, 0], into[:, :, 1] = halves[:, 0], halves[:, 1]
        found.append(into.view_as(weight))
    return [*found, value]


@right("rows_for_llama_cpp")
def signs_that_cancel(query, key, value, heads, kv_heads):
    """A pair that changes its sign in queries and keys leaves the scores as they are."""
    head_dim = len(query) // heads
    order = torch.arange(head_dim).view(2, -1).T.flatten()
    return (
        *(-weight.view(-1, head_dim, weight.shape[1])[:, order].flatten(0, 1) for weight in (query, key)),
        value,
    )
