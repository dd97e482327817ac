"""Flash attention backward, for one tile of keys and values that several query heads share: a column of tiles."""

import math

import torch

from tinydist.lab.author import Memory, Own, Varied, alone, exercise, mistake

from .chapter import BY_HAND, FLOAT, SOLVED, Visits, inputs, lowest, nothing

ENOUGH = 10 * 8 * (8 + 4 + 3) * FLOAT  # 10 tiles of 8 keys: weights of 8 queries, both gradients


def column(
    about, keys, start, queries, tile, window, heads, change=nothing, dtype=torch.float32, measured=False, **how
):
    """``heads``: of queries. Their first numbers are the same, in which the changes lie."""
    q, k, v = inputs(queries, queries, **how)
    generator = torch.Generator().manual_seed(2)
    dout = torch.randn(v.shape, generator=generator)
    change(q, k, v, dout)
    others = torch.randn(heads, *q.shape, generator=generator)
    others[0] = others[..., 0] = 0
    q, dout = q + others, dout * torch.linspace(1, 2, heads)[:, None, None]
    q, k, v, dout = (each.to(dtype or torch.float32) for each in (q, k, v, dout))
    far = torch.arange(queries)[:, None] - torch.arange(queries)
    scores = (q @ k.T / math.sqrt(q.shape[2])).masked_fill((far < 0) | (far >= window), -math.inf)
    by_query = q, dout, scores.logsumexp(2), (dout * (scores.softmax(2) @ v)).sum(2)
    given = k[start : start + keys], v[start : start + keys], *by_query
    where = (
        f"{keys} key{'s' * (keys > 1)} from position {start}, {heads} head{'s' * (heads > 1)} of {queries} queries, "
    )
    where += f"tiles of {tile} queries, a window of {window} ({about})"
    return alone(lambda: (*map(torch.clone, given), start, tile, window), where, measured=measured, facts=heads)


def loud(q, k, v, dout):
    """For the first query that sees some of the keys, the key after its own has a score of 400."""
    q[:, 0], k[5, 0] = 0, 100
    q[4, 0] = 8


def far_below(q, k, v, dout):
    """The gradient would show how such scores are rounded."""
    lowest(q, k, v)
    dout[0] = 0


def test_cases():
    yield column("one tile", 4, 0, 4, 4, 4, 1)
    yield column("two heads", 4, 0, 4, 4, 4, 2)
    yield column("square tiles", 4, 4, 16, 4, 16, 1)
    yield column("the window ends inside of a tile", 4, 4, 24, 4, 7, 2)
    yield column("the window ends with a tile", 4, 4, 24, 4, 5, 3)
    yield column("a window of one: only the query beside a key sees it", 3, 6, 16, 4, 1, 2, d=6, e=5)
    yield column("more keys than queries of a tile, in float64", 6, 4, 14, 2, 3, 2, d=9, dtype=torch.float64)
    yield column("fewer keys than queries of a tile", 2, 7, 15, 5, 6, 2)
    yield column("the last tile is short", 4, 4, 11, 4, 11, 1)
    yield column("one key, tiles of one query", 1, 3, 6, 1, 2, 2)
    yield column("a tile longer than the queries", 3, 0, 5, 8, 3, 1)
    hidden = "a hidden key has a score of 400: mask the scores before exp, with -inf, for inf times 0 is NaN"
    yield column(hidden, 4, 4, 12, 4, 12, 2, loud)
    yield column(
        "query 0 sees one key, with a score of -10^12; hidden ones are lower, -inf", 4, 0, 4, 4, 4, 1, far_below
    )
    yield column("queries before the keys, and many behind the window", 4, 32, 80, 4, 12, 2)
    yield column("many queries", 8, 0, 256, 8, 256, 1, measured=True)


HIDDEN = "(far < 0) | (far >= window)"
DSCORES = "weights * (dout[head, rows] @ v.T - delta[head, rows, None])"
END = "min(q.shape[1], start + len(k) + window - 1)"
SCORES, DK = "q[head, rows] @ k.T / math.sqrt(k.shape[1])", "dscores.T @ q[head, rows] / math.sqrt(k.shape[1])"
RETURNED = "return dk, dv"
VARIANTS = [
    ("Delta is added: the gradient of the scores is weights * (dweights - delta)", "v.T - delta", "v.T + delta"),
    (
        "The gradient of the scores lacks the weights: it is weights * (dweights - delta)",
        DSCORES,
        DSCORES.removeprefix("weights * "),
    ),
    ("dscores is divided by sqrt(d) twice", DK, "dscores.T @ q[head, rows] / k.shape[1]"),
    ("The scores are not divided by sqrt(d) when they are computed again", SCORES, "q[head, rows] @ k.T"),
    (
        "The scores are not divided by sqrt(d), neither forward nor in dk",
        SCORES,
        "q[head, rows] @ k.T",
        DK,
        "dscores.T @ q[head, rows]",
    ),
    (
        "Delta is divided by sqrt(d): the whole of dscores is, once",
        "delta[head, rows, None])",
        "delta[head, rows, None] / math.sqrt(k.shape[1]))",
    ),
    ("Delta is that of the first head, for all of them: each head has its own", "delta[head", "delta[0"),
    ("The log-sum-exp is that of the first head, for all of them: each head has its own", "lse[head", "lse[0"),
    ("This is the mean over the heads: their gradients add up", RETURNED, "return dk / len(q), dv / len(q)"),
    (
        "These are the gradients of the last head: all heads that share the keys add to dk and dv",
        "range(len(q))",
        "range(len(q) - 1, len(q))",
    ),
    (
        "The sums begin anew with each head in dk: all heads add up",
        "dk += dscores.T",
        "dk = dk * (first > start // tile * tile) + dscores.T",
    ),
    (
        "The window is one key too wide: a query sees `window` keys, with its own",
        "far >= window",
        "far > window",
        END,
        END.replace(" - 1", ""),
    ),
    (
        "The window is one key too narrow: a query sees `window` keys, with its own",
        "far >= window",
        "far >= window - 1",
    ),
    ("The causal mask is missing: a query sees keys behind its own", "(far < 0) | ", ""),
    ("The causal mask is the wrong way round: a query sees keys up to its own", "far < 0", "far > 0"),
    ("A query does not see its own key here, which stands at its own position", "far < 0", "far <= 0"),
    (
        "The tile of queries that holds position start is left out, where start lies inside of it",
        "range(start // tile",
        "range(-(-start // tile)",
    ),
    (
        "The last tile of queries is left out: which is the last query that sees the last of these keys?",
        END,
        END.replace(" - 1", " - 2"),
    ),
    (
        "Only the tiles of the first of these keys' windows are visited: the last key's window ends len(k) - 1 later",
        END,
        "min(q.shape[1], start + window)",
    ),
    (
        "dv is collected with dscores: out = weights v, so dv = weights^T dout",
        "dv += weights.T @ dout[head, rows]",
        "dv += (" + DSCORES + ").T @ dout[head, rows]",
    ),
    (
        "Hidden keys have a score of 0, and exp(0 - lse) is not 0: give them a score of -inf",
        "(hidden, -math.inf)",
        "(hidden, 0.0)",
    ),
    (
        "The products of the last tile of queries alone are left: tiles add up",
        "dv += weights.T",
        "dv = 0 + weights.T",
        "dk += dscores.T",
        "dk = 0 + dscores.T",
    ),
]


@exercise(
    title="One column of tiles, backward, for grouped heads",
    minutes=30,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        Own("neither the library's nor torch's attention", BY_HAND, SOLVED, torchs="attention"),
        Varied(
            "the gradients of causal attention in a window, summed over the heads, in the dtype of the keys (float32; "
            "once float64); tiles that are short, of one query, or longer than all queries; scores of -10^12; a hidden "
            "key with a large score",
            names=("dk", "dv"),
            variants=VARIANTS,
        ),
        Visits(
            "four matmuls for each head and each tile of `tile` queries that sees a key, and no other",
            heads=lambda case: case.facts,
        ),
        Memory(
            "10 tiles of weights and of both gradients, with 256 queries: 4,800 bytes, where all weights have 8,192. "
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
            "dscores.T @ q[head, rows] / math.sqrt(k.shape[1])",
            "dscores.T @ q[head, rows]",
        ),
        mistake(
            "Delta is missing: the gradient of the scores is weights * (dweights - delta)",
            DSCORES,
            "weights * (dout[head, rows] @ v.T)",
        ),
        mistake(
            "The softmax is taken over this tile of keys alone. The total is that of all keys: weights are "
            "exp(scores - lse)",
            "(scores.masked_fill(hidden, -math.inf) - lse[head, rows, None]).exp()",
            "scores.masked_fill(hidden, -math.inf).softmax(1).nan_to_num()",
        ),
        mistake(
            "The mask counts keys from the tile's own first: key i of the tile stands at start + i",
            "torch.arange(start, start + len(k))",
            "torch.arange(len(k))",
        ),
        mistake(
            "These are the gradients of one head: all heads that share the keys add to dk and dv",
            "range(len(q))",
            "range(1)",
        ),
        mistake("The window is forgotten: queries far behind a key do not see it", HIDDEN, "far < 0"),
        mistake(
            "Tiles behind the window are visited: which is the last query that sees the last of these keys?",
            END,
            "q.shape[1]",
        ),
    ],
    hints=[
        "Forward first, for one head and one tile: the scores as before, and the weights without any maximum or total. "
        "What is exp(score - lse)?",
        "out = weights v gives dv = weights^T dout and dweights = dout v^T. Softmax gives "
        "dscores = weights * (dweights - delta), with one delta a query.",
        "scores = q k^T / sqrt(d), so dk = dscores^T q / sqrt(d). lse and delta are [R, T]: those of a tile of a head "
        "are lse[head, rows, None], a column.",
        "Key j is seen by the queries from j to j + window - 1. So begin at the tile of queries that has position "
        "start, start // tile * tile, and end before start + len(k) + window - 1. Tiles and heads add up.",
    ],
    why="With grouped heads, as in most models today, dk and dv of a key head are sums over its query heads, which a "
    "kernel adds up before it writes them. A column owns its keys, so within it dk and dv need no lock and no atomic "
    "addition; only dq is shared by the columns.",
)
def flash_column(k, v, q, dout, lse, delta, start, tile, window):
    """The gradients of one tile of keys and values that R query heads share, from weights that are computed again.

    k [s, d] and v [s, e] stand at positions from ``start`` on; q [R, T, d] at positions 0 to T - 1, and come in tiles
    of ``tile``, with the gradients of their outputs, dout [R, T, e], the log-sum-exp of their scores, lse [R, T], and
    delta [R, T], the sum of dout * out over the width. A query sees ``window`` keys, the last of which stands at its
    own position. The scores are q k^T / sqrt(d). Return dk [s, d] and dv [s, e], summed over the heads. Tiles of
    queries that see none of these keys are not visited.
    """
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    positions = torch.arange(start, start + len(k))
    # ? For each head: which tiles of queries see one of these keys?
    # ? Scores and mask. The weights, without maximum or total? What do they add to dv?
    # ? The gradient of the weights, of the scores, and what it adds to dk?
    for head in range(len(q)):
        for first in range(start // tile * tile, min(q.shape[1], start + len(k) + window - 1), tile):
            rows = slice(first, first + tile)
            scores = q[head, rows] @ k.T / math.sqrt(k.shape[1])
            far = torch.arange(first, first + len(scores))[:, None] - positions
            hidden = (far < 0) | (far >= window)
            weights = (scores.masked_fill(hidden, -math.inf) - lse[head, rows, None]).exp()
            dv += weights.T @ dout[head, rows]
            dscores = weights * (dout[head, rows] @ v.T - delta[head, rows, None])
            dk += dscores.T @ q[head, rows] / math.sqrt(k.shape[1])
    return dk, dv
