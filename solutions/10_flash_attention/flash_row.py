"""Flash attention forward, for one tile of queries: a row of tiles, up to the diagonal."""

import math
from functools import partial

import torch

from tinydist.lab.author import Flops, Memory, Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, FLOAT, SOLVED, inputs, low, lowest, nothing

ENOUGH = 8 * 8 * (8 + 3 + 1) * FLOAT  # 8 tiles of 8 queries: scores of 8 keys, output, one number


def row(about, queries, start, keys, tile, change=nothing, measured=False, rtol=1e-4, **how):
    where = f"{queries} quer{'y' if queries == 1 else 'ies'} from position {start}, {keys} keys, tiles of {tile} keys"
    given = partial(inputs, queries, keys, change=change, **how)
    return alone(lambda: (*given(), start, tile), f"{where} ({about})", measured=measured, rtol=rtol)


def loud(q, k, v):
    """For the first query, the key after its own has a score of 400."""
    q[:, 0], k[5, 0] = 0, 100
    q[0, 0] = 8


def poisoned(q, k, v):
    k[8:] = v[8:] = math.nan


def spoiled(q, k, v):
    v[0, 0] = math.nan


def test_cases():
    yield row("one tile", 4, 0, 4, 4)
    yield row("below the diagonal and on it", 4, 8, 12, 4)
    yield row("the last tile begins with the last query's own key", 3, 6, 12, 4)
    yield row("more queries than keys of a tile", 7, 5, 12, 3, d=6, e=5)
    yield row("fewer queries than keys of a tile", 2, 5, 15, 5, d=9)
    yield row("the last tile is short, and is seen", 2, 13, 15, 4)
    yield row("one query, tiles of one key", 1, 3, 4, 1)
    yield row("a tile longer than the keys", 3, 0, 3, 8)
    yield row("large scores: exp of more than 88 is inf, so take it of at most 0", 1, 11, 12, 4, size=100.0)
    near = "scores near -2048: exp of less than -104 is 0, so subtract the maximum of the scores itself"
    yield row(near, 4, 8, 12, 4, low, rtol=1e-3)
    yield row("query 0 sees one key, with a score of -10^12; hidden ones are lower, -inf", 4, 0, 4, 4, lowest)
    yield row("a hidden key has a score of 400: mask the scores before the maximum", 4, 4, 8, 4, loud)
    seen = "NaN in value 0, which every query sees: who hides it, hides that the model has diverged"
    yield row(seen, 4, 4, 8, 4, spoiled)
    behind = "NaN in keys and values from 8 on, which no query sees: visit none of their tiles, for 0 times NaN is NaN"
    yield row(behind, 4, 4, 40, 4, poisoned)
    yield row("many keys", 8, 152, 160, 8, measured=True)


RESCALED = "when a tile brings a larger maximum, what was added up before counts from the old one"
MASK = "torch.arange(first, first + len(keys)) > positions"


@exercise(
    title="One row of tiles: the forward pass",
    minutes=30,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("neither the library's nor torch's attention", BY_HAND, SOLVED, torchs="attention"),
        Values(
            "out and lse of causal attention; tiles that are short, of one key, or longer than all keys; scores of "
            "some hundreds, of -2048, and of -10^12; a hidden key with a large one. NaN in a value that is seen comes "
            "out again",
            names=("out", "lse"),
        ),
        Flops(
            "two products of matrices for each tile of `tile` keys up to the diagonal, and no other: NaN behind it "
            "does no harm",
            name="visits",
        ),
        Memory(
            "8 tiles of scores, output and one number a query, with 160 keys: 3,072 bytes, where all scores have "
            "5,120. Which of your tensors grows with the length?",
            most=lambda case: ENOUGH,
        ),
    ],
    mistakes=[
        mistake("The scores are not divided by sqrt(d)", " / math.sqrt(q.shape[1])", ""),
        mistake(
            "The log-sum-exp lacks the maximum: the total counts from it, so it is maximum + log(total)",
            "(maximum + total.log()).squeeze(1)",
            "total.log().squeeze(1)",
        ),
        mistake(
            "No key is masked, and a query sees what comes after it. Are start + i and first + c compared, the "
            "positions of both?",
            MASK,
            "torch.arange(first, first + len(keys)) < 0",
        ),
        mistake(
            "The mask counts queries from the tile's own first: query i of the tile stands at start + i",
            "torch.arange(start, start + len(q))",
            "torch.arange(len(q))",
        ),
        mistake(
            "The rescaling is forgotten: " + RESCALED + ". Multiply total and output by exp(old - new)",
            "total * factor",
            "total",
            "output * factor",
            "output",
        ),
        mistake(f"The output is not rescaled: {RESCALED}", "output * factor", "output"),
        mistake(
            "The output is divided by total with each tile, and added to as if it were not: divide once, at the end",
            "        maximum = highest\n    return output / total,",
            "        maximum = highest\n        output = output / total\n    return output,",
        ),
        mistake(
            "The tile on the diagonal is not visited: keys from `start` on, where the queries stand, are seen, too",
            "range(0, min(len(k), start + len(q)), tile)",
            "range(0, start, tile)",
        ),
    ],
    hints=[
        "Write it for one tile first: scores, mask, maximum, weights, total, output. Then ask what of these must "
        "change when the next tile brings a larger maximum.",
        "Query i of the tile stands at start + i, key c of a tile at first + c. The last query stands at "
        "start + len(q) - 1: tiles that begin after it are not visited.",
        "With new = torch.maximum(maximum, scores.amax(1, keepdim=True)): total and output are multiplied by "
        "exp(maximum - new), and then the tile's weights, exp(scores - new), are added.",
        "At the end, out is output / total, and lse is maximum + log(total), each [t]: squeeze(1).",
    ],
    why="A row needs nothing of the other rows, so each goes to another processor: that is the order of loops of "
    "FlashAttention-2. The one number a query that is kept, lse, is all that the backward pass needs to compute the "
    "weights again.",
)
def flash_row(q, k, v, start, tile):
    """Causal attention of one tile of queries, with the scores of one tile of keys at a time.

    q [t, d] stand at positions from ``start`` on; k [S, d] and v [S, e] at positions 0 to S - 1, and come in tiles of
    ``tile``. A query sees the keys up to its own position. The scores are q k^T / sqrt(d). Return the output [t, e] and
    the log-sum-exp of the scores of each query, [t]. Tiles that no query sees are not visited.
    """
    maximum = torch.full((len(q), 1), -math.inf)
    total, output = torch.zeros(len(q), 1), torch.zeros(len(q), v.shape[1])
    positions = torch.arange(start, start + len(q))[:, None]
    # -
    # Up to the last query's own position:
    # .
    for first in range(0, min(len(k), start + len(q)), tile):  # = for first in range(0, len(k), tile):  # up to where?
        keys, values = k[first : first + tile], v[first : first + tile]
        # ? Scores, and which of them are masked? The new maximum? What was added up so far, in its unit; and this tile?
        scores = q @ keys.T / math.sqrt(q.shape[1])
        scores = scores.masked_fill(torch.arange(first, first + len(keys)) > positions, -math.inf)
        highest = torch.maximum(maximum, scores.amax(1, keepdim=True))
        weights, factor = (scores - highest).exp(), (maximum - highest).exp()
        total = total * factor + weights.sum(1, keepdim=True)
        output = output * factor + weights @ values
        maximum = highest
    # ? Which two tensors come back?
    return output / total, (maximum + total.log()).squeeze(1)
