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


def over_folded_rows(H, G, first):
    """The queries of a group, one under the other, as if they were one head's. [H, T, S]"""

    def visible(T, S):
        rows = H // G * T
        mask = torch.ones(rows, S, dtype=torch.bool).tril(S - T if first else S - rows)
        return mask.view(H // G, T, S).repeat(G, 1, 1)

    return visible


def folded_masks(H, G):
    rule = "as if they were queries of one head. The mask is [T, S], for each head"
    return {
        f"the mask goes on from the first head of a group to its next ones, {rule}": over_folded_rows(H, G, True),
        f"the mask goes back from the last head of a group to those before, {rule}": over_folded_rows(H, G, False),
    }


ITSELF = "a query does not see itself: its own key is among those that it sees"
WRONG_MASKS = {
    "the mask is missing: a query sees keys after itself": all_keys,
    "the mask is transposed: a query sees itself and the keys after it, where it should see those before": transposed,
    "the mask is inverted: what should be seen is masked, and the other way round": inverted,
    ITSELF: not_itself,
    "the first query stands beside the first key. But with fewer queries than keys the first keys are the past, from a "
    "cache: the last query stands beside the last key, and query i at i + S - T": beside_the_first,
}


def attend(
    q, k, v, *, k_heads=in_groups, v_heads=in_groups, visible=beside_the_last, power=0.5, over=1, dim=-1, how=None
):
    """In float64. Scores are divided by (d over)**power; ``visible`` may be a mask. ``how``: "after" the softmax,
    "undivided", or the score of what is masked."""
    q, k, v = q.double(), k.double(), v.double()
    (H, T, d), (G, S) = q.shape[1:], k.shape[1:3]
    mask = visible(T, S) if callable(visible) else visible
    scores = q @ k[:, k_heads(H, G)].mT / (d * over) ** power
    if how == "after":
        weights = scores.softmax(dim) * mask
    elif how == "undivided":
        weights = scores.exp() * mask
    else:
        weights = scores.masked_fill(~mask, -math.inf if how is None else how).softmax(dim)
    return weights @ v[:, v_heads(H, G)]


# Other ways to mask.
ZERO = "what is masked gets a score of 0, and exp(0) is 1, not nothing: -inf is"
AFTER = "the weights are masked after the softmax, and no longer sum to 1: mask the scores, before it"
LOW, FINITE = -2000, -100
NOT_INF = (
    "what is masked gets a score that is not -inf, and is not small beside scores of -2,000: no finite number is small "
    "beside all scores, -inf is"
)
LOWER = "Lower each row by its maximum first, which changes no weight, or use torch.softmax, which does"


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
        ZERO: dict(how=0),
        AFTER: dict(how="after"),
        "the weights do not sum to 1: divide the exponentials by their sum": dict(how="undivided"),
    }


# The rows of the result: where each should stand, [H, T].
REORDERED = (
    "the rows come back in another order than the heads of q: T rows of the first head of a group, then those of its "
    "next. A view leaves rows where they lie, and a transpose moves them: what moves them on the way in must be "
    "undone on the way out"
)


def orders(H, G, T):
    rows = torch.arange(H * T)
    by_group = rows.view(G, H // G, T)
    found = [by_group.transpose(1, 2), rows.view(H, T).mT, rows.view(H // G, G, T).transpose(0, 1)]
    return [moved for each in found for moved in (each.flatten(), each.flatten().argsort())]


def reordered(q, k, v, got, **options):
    """Is it right but for the order of the rows, on the way in or on the way out?"""
    (H, T), G = q.shape[1:3], k.shape[1]
    right = attend(q, k, v, **options)
    for order in orders(H, G, T):
        inwards = attend(moved(q, order), k, v, **options)
        if any(close(got, each) for each in (inwards, moved(inwards, order), moved(right, order))):
            return REORDERED
    return None


def moved(x, order):
    return x.flatten(1, 2)[:, order].view(x.shape)


def explained(got, made):
    """The words of the first mistake whose result is ``got``; ``made``: (words, its result, made when needed)."""
    return next((words for words, make in made if alike(got, make())), None)


def alike(got, made):
    """Where a mistake gives NaN, an answer with the same mistake may give something else."""
    there = ~made.isnan()
    return bool(there.any()) and close(got[there], made[there])


def close(a, b):
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5, equal_nan=True)


def with_score(score, keys, heads):
    """Queries [..., H, d] that have this score with keys [..., G, d]."""
    queries = score * keys.shape[-1] ** 0.5 * keys / (keys * keys).sum(-1, keepdim=True)
    return queries.repeat_interleave(heads // keys.shape[-2], -2)


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
