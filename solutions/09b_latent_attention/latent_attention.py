"""Attention over latents: keys and values are made of them, or queries absorb the matrix, whichever is cheaper."""

import math

import torch

from tinydist.lab.author import Flops, Varied, Wrong, alone, exercise, mistake

from .chapter import BUILT, LOW


def case(B, H, T, S, c, d, e, r, note="", change=lambda q, rows: None, dtype=torch.float32):
    def arguments():
        generator = torch.Generator().manual_seed(T * S + H)
        shapes = (B, H, T, d + r), (B, S, c + r), (H, d + e, c)
        q, rows, up = (torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes)
        change(q, rows)
        return q, rows, up / math.sqrt(c), r

    many = f"{T} quer{'ies' if T > 1 else 'y'} on {S} latent{'s' * (S > 1)}"
    sizes = f"{H} head{'s' * (H > 1)}, c, d, e, r = {c}, {d}, {e}, {r}"
    return alone(arguments, f"{many}, {sizes}{note}", rtol=1e-4)


def low(q, rows):
    """Query 0 and key 0, the only one that it sees; by their last two numbers."""
    q[:, :, 0], rows[:, 0, -2:] = 0, 1
    q[:, :, 0, -2:] = LOW * q.shape[3] ** 0.5 / 2


def loud(q, rows):
    """Scores of several hundred."""
    q *= 200


def test_cases():
    yield case(1, 1, 1, 4, 5, 3, 3, 2)
    yield case(1, 1, 4, 4, 5, 3, 3, 2)
    yield case(2, 3, 5, 5, 6, 4, 3, 2)
    yield case(1, 2, 1, 9, 6, 4, 4, 2)
    yield case(1, 1, 1, 1, 3, 2, 2, 2)
    yield case(2, 4, 1, 12, 5, 3, 6, 4, ", float64", dtype=torch.float64)
    yield case(2, 2, 3, 20, 8, 6, 5, 4)
    yield case(1, 2, 3, 3, 5, 4, 2, 2, f", a score of {LOW:.0e}", low)
    yield case(1, 2, 5, 5, 6, 4, 4, 2, ", scores of several hundred", loud, torch.float64)
    yield case(2, 2, 12, 30, 16, 4, 4, 2)
    yield case(1, 2, 4, 6, 6, 6, 5, 2)
    yield case(1, 8, 1, 256, 32, 16, 16, 8)


class Cheaper(Flops):
    """At most those of the reference, in as many products as you like."""

    def seen(self, trial):
        products = super().seen(trial)
        return products and sum(products[0])

    def judge(self, exercise, trial, right):
        mine, its = self.seen(trial), self.seen(right)
        if mine > its:
            raise Wrong(f"it multiplies matrices with {mine:,} FLOPs, where {its:,} are enough")
        if mine < self.least * its:
            raise Wrong(
                f"it multiplies matrices with {mine:,} FLOPs, where {its:,} are right: multiply matrices of torch, "
                "with @ or einsum, where they can be counted"
            )


CHOICE = "T * S * (2 * c - d - e) < (S - T) * c * (d + e)"
ROOT = "math.sqrt(d + r)"
PARTS = "of_keys, of_values = up.split([d, e], dim=1)"
PRODUCTS = "products + turned @ rotary.mT"
ROTARY = " + turned @ rotary.mT"


@exercise(
    title="Attention over latents, the cheaper way",
    minutes=40,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        BUILT,
        Varied(
            "those of attention over the keys and values that the latents make: prompts, steps, pieces of a prompt; "
            f"causal, where the last query stands beside the last key; scores of several hundred, and of {LOW:.0e}",
            variants=[
                (
                    "Where queries absorb the matrix the scores are divided by sqrt(c + r). They are the same scores "
                    "as those with keys that are made: by sqrt(d + r)",
                    ROOT,
                    "math.sqrt(c + r if absorbs else d + r)",
                ),
                (
                    "The scores are divided by sqrt(c + r), of a latent and its rotary key. A score has d + r products",
                    ROOT,
                    "math.sqrt(c + r)",
                ),
                (
                    "Where queries absorb the matrix the scores are divided by sqrt(c): by sqrt(d + r)",
                    ROOT,
                    "math.sqrt(c if absorbs else d + r)",
                ),
                (
                    "Where queries absorb the matrix the scores are not divided",
                    ROOT,
                    "(1 if absorbs else math.sqrt(d + r))",
                ),
                (
                    "The scores are divided by sqrt(d + e): e is the width of a value. Keys have d + r",
                    ROOT,
                    "math.sqrt(d + e)",
                ),
                ("The scores are divided by sqrt(e): a value's width. Keys have d + r", ROOT, "math.sqrt(e)"),
                ("The scores are divided by sqrt(c): a latent's width. Keys have d + r", ROOT, "math.sqrt(c)"),
                ("The scores are not divided by sqrt(d + r)", ROOT, "1"),
                ("The scores are divided by sqrt(d + r), and not by d + r", ROOT, "(d + r)"),
                (
                    "Both parts of a score are divided by sqrt(d + r): the rotary part is not",
                    f"({PRODUCTS}) / {ROOT}",
                    f"products / {ROOT}{ROTARY}",
                ),
                (
                    "Both parts of a score are divided by sqrt(d + r): the first is not",
                    f"({PRODUCTS}) / {ROOT}",
                    f"products{ROTARY} / {ROOT}",
                ),
                (
                    "Both parts of a score are divided by sqrt(d + r), and not each by its own",
                    f"({PRODUCTS}) / {ROOT}",
                    f"products / math.sqrt(d){ROTARY} / math.sqrt(r)",
                ),
                (
                    "The first part of the scores is missing: key . first d of q",
                    f"({PRODUCTS})",
                    "(0 * products" + ROTARY + ")",
                ),
                ("A query does not see the key beside it, and should", "tril(S - T)", "tril(max(S - T - 1, 0))"),
                ("A query sees one key after itself", "tril(S - T)", "tril(S - T + 1)"),
                ("The mask is the other way round: a query sees keys up to its own", "tril(S - T)", "triu(S - T)"),
                (
                    "Of a query the last r numbers are rotated: these are the first",
                    "contents, turned = q.split([d, r], dim=-1)",
                    "turned, contents = q.split([r, d], dim=-1)",
                ),
                (
                    "Of a row the last r numbers are the rotary key: these are the first",
                    "latents, rotary = rows[:, None].split([c, r], dim=-1)",
                    "rotary, latents = rows[:, None].split([r, c], dim=-1)",
                ),
                ("The weights of a query sum to 1 over the keys", "softmax(-1)", "softmax(-2)"),
                (
                    "The mask comes before softmax: so the weights of a query do not sum to 1",
                    "scores.masked_fill(~seen, -math.inf).softmax(-1)",
                    "scores.softmax(-1).masked_fill(~seen, 0)",
                ),
            ],
        ),
        Cheaper(
            "with T queries and S keys those of the cheaper way: all keys and values made, or none of them. Products "
            "count, in as many pieces as you like"
        ),
    ],
    mistakes=[
        mistake(
            "All keys and values of the past are made, for few queries. Let each query absorb the matrix, and gather "
            "latents",
            CHOICE,
            "False",
        ),
        mistake(
            "The queries absorb the matrix where there are about as many as keys. An absorbed query is c numbers long, "
            "in place of d, and meets every latent: making the keys once is cheaper then",
            CHOICE,
            "True",
        ),
        mistake(
            "Keys are absorbed, and values are made: (weights @ latents) first, then each head's matrix",
            "    if absorbs:\n        return",
            "    if False:\n        return",
        ),
        mistake(
            "The position is missing: a score has a second part, the query's last r numbers with the rotary key",
            ROTARY,
            "",
        ),
        mistake(
            "The scores are divided by sqrt(d). A key has d + r numbers, with its rotary part: each score is a sum of "
            "so many products",
            ROOT,
            "math.sqrt(d)",
        ),
        mistake(
            "Of a head's matrix the first d rows make its key and the others its value: here it is the other way round",
            PARTS,
            "of_values, of_keys = up.split([e, d], dim=1)",
        ),
        mistake("The mask is missing: a query sees keys after itself", ".tril(S - T)", ""),
        mistake(
            "The first query stands beside the first key. But with fewer queries than keys the first keys are the "
            "past: the last query stands beside the last key",
            "tril(S - T)",
            "tril()",
        ),
    ],
    hints=[
        "First without a choice: of head h, up[h] has d rows that make a key from a latent, and e rows below them that "
        "make a value. Make all of them, [B, H, S, d] and [B, H, S, e], and attend as in the notebook.",
        "A score is the sum of two products: the first d numbers of the query with the key that was made, the last r "
        "with the rotary key, which all heads share. Both are divided by sqrt(d + r).",
        "q . (U l) = (U^T q) . l: contents @ of_keys is [B, H, T, c], and meets rows[:, None], a single head. And the "
        "mean of V l is V times the mean of l.",
        "Count products, each 2 FLOPs, per head. Made: S c (d + e) to make, T S (d + e) to attend. Absorbed: T c "
        "(d + e) to absorb, T S 2 c to attend. The rotary part costs both the same. Which is smaller?",
    ],
    why="This is the choice between prefill and decode in every server for DeepSeek's models. With its 128 numbers a "
    "head and latents of 512, a step absorbs, and so does a piece of 170 queries behind a long past; from 171 on the "
    "keys are made.",
)
def latent_attention(q, rows, up, r):
    """Causal attention of ``H`` heads over latents, with no more FLOPs than the cheaper of two ways: [B, H, T, e].

    A token of the past has left one row, of c + r numbers: its latent, and a rotary key, which is rotated already.
    rows is [B, S, c + r]. q is [B, H, T, d + r], its last r numbers rotated as well; T <= S, and the last query stands
    beside the last row. up is [H, d + e, c]: of each head, the matrix that makes a key of d numbers from a latent, and
    below it the one that makes a value of e.

    A score is (key . first d of q + rotary key . last r of q) / sqrt(d + r). Either make the keys and values, or let
    the queries absorb the matrix: what is cheaper depends on T and S.
    """
    T, S = q.shape[2], rows.shape[1]
    c, d = rows.shape[2] - r, q.shape[3] - r
    e = up.shape[1] - d
    # ? the parts: of the queries, of the rows (which all heads share), of each head's matrix
    # ? which way costs fewer FLOPs?
    # ? scores, of both parts, scaled.  [B, H, T, S]
    # ? who sees whom?  [T, S]
    # ? weights that sum to 1 over the keys
    # ? what each head gathers, as values.  [B, H, T, e]
    contents, turned = q.split([d, r], dim=-1)
    latents, rotary = rows[:, None].split([c, r], dim=-1)  # [B, 1, S, ...]
    of_keys, of_values = up.split([d, e], dim=1)  # [H, d, c], [H, e, c]
    absorbs = T * S * (2 * c - d - e) < (S - T) * c * (d + e)
    products = contents @ of_keys @ latents.mT if absorbs else contents @ (latents @ of_keys.mT).mT
    scores = (products + turned @ rotary.mT) / math.sqrt(d + r)
    seen = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    if absorbs:
        return weights @ latents @ of_values.mT
    return weights @ (latents @ of_values.mT)
