"""Flash attention backward, for one tile of keys and values: a column of tiles, from the diagonal on."""

import math

import torch

from tinydist.lab.author import Flops, Memory, Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, FLOAT, SOLVED, inputs, lowest, nothing

ENOUGH = 8 * 8 * (8 + 4 + 3) * FLOAT  # 8 tiles of 8 keys: weights of 8 queries, both gradients


def column(about, keys, start, queries, tile, change=nothing, poisoned=0, dtype=torch.float32, measured=False, **how):
    """``poisoned``: so many queries hold NaN."""
    q, k, v = inputs(queries, queries, **how)
    dout = torch.randn(v.shape, generator=torch.Generator().manual_seed(2))
    change(q, k, v, dout)
    q, k, v, dout = (each.to(dtype) for each in (q, k, v, dout))
    scores = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~torch.ones(queries, queries).tril().bool(), -math.inf)
    by_query = q, dout, scores.logsumexp(1), (dout * (scores.softmax(1) @ v)).sum(1)
    for each in by_query:
        each[:poisoned] = math.nan
    given = k[start : start + keys], v[start : start + keys], *by_query
    where = f"{keys} key{'s' * (keys > 1)} from position {start}, {queries} queries, tiles of {tile} queries"
    return alone(lambda: (*map(torch.clone, given), start, tile), f"{where} ({about})", measured=measured)


def loud(q, k, v, dout):
    """For the first query that sees some of the keys, the key after its own has a score of 400."""
    q[:, 0], k[5, 0] = 0, 100
    q[4, 0] = 8


def far_below(q, k, v, dout):
    """The gradient would show how such scores are rounded."""
    lowest(q, k, v)
    dout[0] = 0


def test_cases():
    yield column("one tile", 4, 0, 4, 4)
    yield column("square tiles", 4, 4, 16, 4)
    yield column("tiles that are not square", 3, 6, 16, 4, d=6, e=5)
    yield column("more keys than queries of a tile, in float64", 6, 4, 14, 2, d=9, dtype=torch.float64)
    yield column("fewer keys than queries of a tile", 2, 7, 15, 5)
    yield column("the last tile is short", 4, 4, 11, 4)
    yield column("one key, tiles of one query", 1, 3, 6, 1)
    yield column("a tile longer than the queries", 3, 0, 5, 8)
    hidden = "a hidden key has a score of 400: mask the scores before exp, with -inf, for inf times 0 is NaN"
    yield column(hidden, 4, 4, 12, 4, loud)
    yield column("query 0 sees one key, with a score of -10^12; hidden ones are lower, -inf", 4, 0, 4, 4, far_below)
    before = "NaN before query 32, where none sees these keys: visit none of their tiles, for 0 times NaN is NaN"
    yield column(before, 4, 32, 40, 4, poisoned=32)
    yield column("many queries", 8, 0, 128, 8, measured=True)


HIDDEN = "positions > torch.arange(first, first + len(scores))[:, None]"
DSCORES = "weights * (dout[rows] @ v.T - delta[rows, None])"


@exercise(
    title="One column of tiles: the backward pass",
    minutes=30,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        Own("neither the library's nor torch's attention", BY_HAND, SOLVED, torchs="attention"),
        Values(
            "the gradients of causal attention, in the dtype of the keys; tiles that are short, of one query, or "
            "longer than all queries; scores of -10^12; a hidden key with a large score",
            names=("dk", "dv"),
        ),
        Flops(
            "four products of matrices for each tile of `tile` queries from the diagonal on, and no other: NaN before "
            "it does no harm",
            name="visits",
        ),
        Memory(
            "8 tiles of weights and of both gradients, with 128 queries: 3,840 bytes, where all weights have 4,096. "
            "Which of your tensors grows with the length?",
            most=lambda case: ENOUGH,
        ),
    ],
    mistakes=[
        mistake(
            "The transpose is forgotten: a key collects from all queries of the tile, so the product is over the "
            "queries, weights^T dout and dscores^T q",
            "weights.T",
            "weights",
            "dscores.T",
            "dscores",
        ),
        mistake(
            "dscores is not scaled: the scores are q k^T / sqrt(d), so dk needs the 1 / sqrt(d), too",
            "dscores.T @ q[rows] / math.sqrt(q.shape[1])",
            "dscores.T @ q[rows]",
        ),
        mistake(
            "Delta is missing: the gradient of the scores is weights * (dweights - delta)",
            DSCORES,
            "weights * (dout[rows] @ v.T)",
        ),
        mistake(
            "Delta is summed over this tile of keys alone, where it is that of all keys: the one that is given",
            DSCORES,
            "weights * (dout[rows] @ v.T - (weights * (dout[rows] @ v.T)).sum(1, keepdim=True))",
        ),
        mistake(
            "The softmax is taken over this tile of keys alone. The total is that of all keys: weights are "
            "exp(scores - lse)",
            "(scores.masked_fill(hidden, -math.inf) - lse[rows, None]).exp()",
            "scores.masked_fill(hidden, -math.inf).softmax(1).nan_to_num()",
        ),
        mistake(
            "The scores are not divided by sqrt(d) when they are computed again: lse is that of the scaled ones",
            "k.T / math.sqrt(q.shape[1])",
            "k.T",
        ),
        mistake(
            "The mask counts keys from the tile's own first: key i of the tile stands at start + i",
            "torch.arange(start, start + len(k))",
            "torch.arange(len(k))",
        ),
        mistake("The mask is forgotten: queries before a key do not see it", HIDDEN, f"({HIDDEN}) & False"),
    ],
    hints=[
        "Forward first, for one tile: the scores as before, and the weights without any maximum or total. What is "
        "exp(score - lse)?",
        "out = weights v gives dv = weights^T dout and dweights = dout v^T. Softmax gives "
        "dscores = weights * (dweights - delta), with one delta a query.",
        "scores = q k^T / sqrt(d), so dk = dscores^T q / sqrt(d). lse and delta are [T]: [:, None] makes them a "
        "column, one number for each query of the tile.",
        "Queries before the first key see none of the tile: begin at the tile of queries that has position start, "
        "start // tile * tile. dk and dv add up over the tiles.",
    ],
    why="The weights of a sequence of 16,384 tokens have a gigabyte a head in fp32; computing them again costs one "
    "product of matrices of five, and is faster than reading them. A column owns its keys, so dk and dv need no lock "
    "and no atomic addition; only dq is shared by the columns.",
)
def flash_column(k, v, q, dout, lse, delta, start, tile):
    """The gradients of one tile of keys and values in causal attention, from weights that are computed again.

    k [s, d] and v [s, e] stand at positions from ``start`` on; q [T, d] at positions 0 to T - 1, and come in tiles of
    ``tile``, with the gradients of their outputs, dout [T, e], the log-sum-exp of their scores, lse [T], and
    delta [T], the sum of dout * out over the width. The scores are q k^T / sqrt(d). Return dk [s, d] and dv [s, e].
    Tiles of queries that see none of these keys are not visited.
    """
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    positions = torch.arange(start, start + len(k))
    # -
    # From the tile that has the first key's position on:
    # .
    for first in range(start // tile * tile, len(q), tile):  # = for first in range(0, len(q), tile):  # from where?
        rows = slice(first, first + tile)
        # ? Scores and mask, as in the forward pass. The weights, without maximum or total?
        # ? What does this tile add to dv?
        # ? The gradient of the weights, of the scores, and what it adds to dk?
        scores = q[rows] @ k.T / math.sqrt(q.shape[1])
        hidden = positions > torch.arange(first, first + len(scores))[:, None]
        weights = (scores.masked_fill(hidden, -math.inf) - lse[rows, None]).exp()
        dv += weights.T @ dout[rows]
        dscores = weights * (dout[rows] @ v.T - delta[rows, None])
        dk += dscores.T @ q[rows] / math.sqrt(q.shape[1])
    return dk, dv
