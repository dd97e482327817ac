"""Attention by its parts, so that each can be a wrong one: what a wrong result may come from."""

import math

import torch

from ...values import slightly_off

# Which head of keys and values each query head reads.


def in_groups(H, G):
    return torch.arange(H) // (H // G)


def by_turns(H, G):
    return torch.arange(H) % G


def the_first(H, G):
    return torch.zeros(H, dtype=torch.long)


# Who sees whom, bool [T, S].


def beside_the_last(T, S, diagonal=0):
    """The last query stands beside the last key."""
    return torch.ones(T, S, dtype=torch.bool).tril(S - T + diagonal)


def beside_the_first(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril()


def all_keys(T, S):
    return torch.ones(T, S, dtype=torch.bool)


def transposed(T, S):
    return torch.ones(T, S, dtype=torch.bool).triu(S - T)


def inverted(T, S):
    return ~beside_the_last(T, S)


def not_itself(T, S):
    return beside_the_last(T, S, -1)


WRONG_MASKS = {
    "the mask is missing: a query sees keys after itself": all_keys,
    "the mask is transposed: a query sees itself and the keys after it, where it should see those before": transposed,
    "the mask is inverted: what should be seen is masked, and the other way round": inverted,
    "a query does not see itself: its own key is among those that it sees": not_itself,
    "the first query stands beside the first key. But with fewer queries than keys the first keys are the past, from a "
    "cache: the last query stands beside the last key, and query i at i + S - T": beside_the_first,
}


def attend(
    q, k, v, *, k_heads=in_groups, v_heads=in_groups, visible=beside_the_last, power=0.5, over=1, dim=-1, how=None
):
    """In float64. Scores are divided by (d over)**power; ``visible`` may be a mask. ``how``: another way to mask."""
    q, k, v = q.double(), k.double(), v.double()
    (H, T, d), (G, S) = q.shape[1:], k.shape[1:3]
    mask = visible(T, S) if callable(visible) else visible
    scores = q @ k[:, k_heads(H, G)].mT / (d * over) ** power
    if how == "after":
        weights = scores.softmax(dim) * mask
    elif how == "undivided":
        weights = scores.exp() * mask
    else:
        weights = scores.masked_fill(~mask, 0 if how == "zero" else -math.inf).softmax(dim)
    return weights @ v[:, v_heads(H, G)]


def wrong_parts(H):
    """Words for a mistake -> the options of ``attend`` that make it."""
    return {
        "query head h reads head h % G of K and V, as with repeat; neighbors share one: repeat_interleave's order, "
        "h // (H/G)": dict(k_heads=by_turns, v_heads=by_turns),
        "query head h reads the keys of head h % G, as with repeat, and not of h // (H/G). The values are right": dict(
            k_heads=by_turns
        ),
        "query head h reads the values of head h % G, as with repeat, and not of h // (H/G). The keys are right": dict(
            v_heads=by_turns
        ),
        "all query heads read head 0 of K and V": dict(k_heads=the_first, v_heads=the_first),
        "the scores are not scaled: a product over the head dim d grows with sqrt(d), so they are divided by it": dict(
            power=0
        ),
        "the scores are divided by sqrt(H d), the width of the model: each is a product over the d numbers of one "
        "head": dict(over=H),
        "the scores are divided by d, where its square root is right": dict(power=1),
        "the scores are scaled the wrong way round: they are divided by sqrt(d)": dict(power=-0.5),
        "softmax runs over the queries: the weights of one query are to sum to 1, so it runs over the keys, the last "
        "dim": dict(dim=-2),
        "softmax runs over the heads: the weights of one query are to sum to 1, so it runs over the keys, the last "
        "dim": dict(dim=1),
        "what is masked gets a score of 0, and exp(0) is 1, not nothing: -inf is": dict(how="zero"),
        "the weights are masked after the softmax, and no longer sum to 1: mask the scores, before it": dict(
            how="after"
        ),
        "the weights do not sum to 1: divide the exponentials by their sum": dict(how="undivided"),
    }


def explained(got, made):
    """The words of the first mistake whose result is ``got``; ``made``: words -> (the result, made when needed)."""
    if got.isnan().all():
        return None  # whatever gives NaN everywhere would do
    return next((words for words, make in made.items() if close(got, make())), None)


def close(a, b):
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5, equal_nan=True)


def first_difference(got, right):
    """Of [B, H, T, d]."""
    slightly = slightly_off(got, right)
    smaller = f". They are off by about {slightly:.1g} %: are they computed in a smaller dtype?" if slightly else ""
    off = ~torch.isclose(got.double(), right.double(), rtol=1e-4, atol=1e-5)
    row, head, query, number = off.nonzero()[0].tolist()
    return (
        f"{int(off.sum())} of {off.numel()} numbers are wrong. The first is in row {row}, head {head}, query {query}: "
        f"{got[row, head, query, number].item():.5g}, where {right[row, head, query, number].item():.5g} is right"
        f"{smaller}"
    )
