"""Grouped-query attention: neighboring query heads read one head of keys and values, where it lies."""

import math

import torch

from tinydist.lab.author import Values, alone, exercise, mistake, turned

from .chapter import BUILT, BY_TURNS, LOW, REORDERED, UNSCALED, NoCopy, masks, with_score


def case(B, H, G, T, S, d, note="", change=lambda q, k: None, dtype=torch.float32, **more):
    def arguments():
        generator = torch.Generator().manual_seed(T * S + H)
        shapes = (B, H, T, d), (B, G, S, d), (B, G, S, d)
        q, k, v = (torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes)
        change(q, k)
        return q, k, v

    about = f"{H} query heads on {G} of keys and values, {T} quer{'ies' if T > 1 else 'y'} on {S} key{'s' * (S > 1)}"
    return alone(arguments, about + note, facts=B * H * T * S, **more)


def low(q, k):
    """Query 0 and key 0, the only one that it sees."""
    q[:, :, 0] = with_score(LOW, k[:, :, 0], q.shape[1])


def large(q, k):
    """Scores of several hundred; of whole numbers, so that they are exact."""
    q.copy_((200 * q).round())
    k.copy_((8 * k).round() / 8)


def worlds():
    yield case(2, 3, 3, 5, 5, 7)
    yield case(1, 1, 1, 1, 1, 2)
    yield case(2, 6, 3, 5, 5, 7)
    yield case(3, 5, 1, 4, 4, 3)
    yield case(2, 6, 2, 3, 8, 5)
    yield case(2, 4, 2, 1, 9, 6, ", float64", dtype=torch.float64)
    yield case(1, 2, 1, 3, 3, 4, f", a score of {LOW:.0e}", low)
    yield case(1, 4, 2, 5, 5, 4, ", scores of several hundred", large)
    yield turned(case(2, 4, 2, 3, 4, 6))
    yield case(2, 8, 2, 1, 512, 64, measured=True)


FIRST = "    (B, H, T, d), (G, S) = q.shape, k.shape[1:3]\n"
FOLDED = "(q / math.sqrt(d)).reshape(B, G, H // G * T, d)"
MASK = "torch.ones(T, S, dtype=torch.bool).tril(S - T)"
ITSELF = "A query does not see itself: its own key is among those that it sees"


@exercise(
    title="Grouped-query attention without a copy",
    minutes=25,
    difficulty=2,
    worlds=worlds,
    targets=[
        BUILT,
        Values(
            "those of torch's scaled_dot_product_attention with enable_gqa: G = H, 1 < G < H, G = 1, odd sizes, scores "
            f"of several hundred, and of {LOW:.0e}. Causal, also where queries are fewer than keys: the last query "
            "stands beside the last key"
        ),
        NoCopy(
            "for one query and 512 keys at most 8 times the bytes of the scores, by the ledger: half of what K alone "
            "has"
        ),
    ],
    mistakes=[
        mistake("q came back as it was", "return (weights.view(B, G, H // G * T, S) @ v).view(B, H, T, d)", "return q"),
        mistake("The mask is missing: a query sees keys after itself", ".tril(S - T)", ""),
        mistake(
            "The mask is transposed: a query sees itself and the keys after it, where it should see those before",
            "tril",
            "triu",
        ),
        mistake("The mask is inverted: what should be seen is masked, and the other way round", "~seen", "seen"),
        mistake(f"{ITSELF}, and the first one sees none, which gives NaN", "S - T)", "S - T - 1)"),
        mistake(ITSELF, "S - T)", "S - T - 1)", "-math.inf", "-1e9"),
        mistake(
            "The first query stands beside the first key. But with fewer queries than keys the first keys are the "
            "past, from a cache: the last query stands beside the last key, and query i at i + S - T",
            "tril(S - T)",
            "tril()",
        ),
        mistake(
            "The mask goes on from the first head of a group to its next ones, as if they were queries of one head. "
            "The mask is [T, S], for each head",
            MASK,
            "torch.ones(H // G * T, S, dtype=torch.bool).tril(S - T).view(H // G, T, S).repeat(G, 1, 1)",
        ),
        *masks("~seen"),
        mistake(
            "Softmax runs over the queries: the weights of one query are to sum to 1, so it runs over the keys, the "
            "last dim",
            "softmax(-1)",
            "softmax(-2)",
        ),
        mistake(UNSCALED, "(q / math.sqrt(d))", "q"),
        mistake("The scores are divided by d, where its square root is right", "math.sqrt(d)", "d"),
        mistake(
            "The scores are divided by sqrt(H d), the width of the model: each is a product over the d numbers of one "
            "head",
            "math.sqrt(d)",
            "math.sqrt(H * d)",
        ),
        mistake(BY_TURNS, FIRST, f"{FIRST}    k, v, G = k.repeat(1, H // G, 1, 1), v.repeat(1, H // G, 1, 1), H\n"),
        mistake("All query heads read head 0 of K and V", FIRST, f"{FIRST}    k, v, G = k[:, :1], v[:, :1], 1\n"),
        mistake(
            REORDERED,
            FOLDED,
            "(q / math.sqrt(d)).view(B, G, H // G, T, d).transpose(2, 3).reshape(B, G, H // G * T, d)",
        ),
    ],
    hints=[
        "With H = G it is q @ k.mT / sqrt(d), a mask, a softmax over the keys, @ v. Which head of K does query head h "
        "read if G is smaller? Which query heads have their K in common?",
        "Query heads 0 to H/G - 1 read head 0. To repeat K for them takes memory. Instead, lay their queries one under "
        "the other: they are rows that meet the same keys.",
        "q.reshape(B, G, H // G * T, d) @ k.mT gives all scores with no copy of K; .view(B, H, T, S) puts them back in "
        "order. Scale q, not K.",
        "Query i stands at i + S - T: it sees key j where j <= i + S - T. torch.ones(T, S, dtype=torch.bool) has "
        ".tril(diagonal) for that; scores.masked_fill(~seen, -math.inf). The weights meet v as q met k.",
    ],
    why="A decode step reads all of K and V for one query: Llama 3 70B has 8 heads of them for 64 of queries, so an "
    "eighth of the bytes. A repeat_interleave would write 64 into memory at each step, and with repeat a "
    "converted checkpoint talks nonsense, although all shapes fit.",
)
def grouped_attention(q, k, v):
    """Causal attention of ``H`` query heads on ``G`` heads of keys and values, in groups of neighbors: [B, H, T, d].

    q is [B, H, T, d], k and v are [B, G, S, d]; G divides H, and T <= S. Query head h reads head h // (H/G). The last
    query stands beside the last key: each sees the key beside it, and all keys before that. K and V may be large: do
    not copy them. A loop over heads copies nothing, and may be used.
    """
    (B, H, T, d), (G, S) = q.shape, k.shape[1:3]
    # ? which query heads read the same keys? Let them meet these in one product, scaled.  [B, H, T, S]
    # ? who sees whom?  [T, S]
    # ? weights that sum to 1 over the keys
    # ? a mean of the values, with heads in the order of q.  [B, H, T, d]
    rows = (q / math.sqrt(d)).reshape(B, G, H // G * T, d)  # a group's queries, one under the other
    scores = (rows @ k.mT).view(B, H, T, S)
    seen = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    return (weights.view(B, G, H // G * T, S) @ v).view(B, H, T, d)
