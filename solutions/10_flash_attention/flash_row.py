"""Flash attention forward, for one tile of queries: a row of tiles, up to the diagonal."""

import math

import torch

from tinydist.lab.author import Flops, Memory, Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, SOLVED

FLOAT = 4  # bytes
MANY = 160  # keys, where bytes held are judged


def row(about, queries, start, keys, tile, *, d=4, e=3, size=1.0, change=lambda q, k, v: None, **more):
    def arguments():
        generator = torch.Generator().manual_seed(1)
        q, k, v = (torch.randn(*shape, generator=generator) for shape in ((queries, d), (keys, d), (keys, e)))
        q *= 2 * size
        change(q, k, v)
        return q, k, v, start, tile

    where = f"{queries} quer{'y' if queries == 1 else 'ies'} from position {start}, {keys} keys, tiles of {tile} keys"
    return alone(arguments, f"{where} ({about})", facts=8 * queries * (tile + e + 1) * FLOAT, **more)


def low(q, k, v):
    """All scores are near -2048, and exact in float32; the log-sum-exp is to 1e-4."""
    for each in (q, k):
        each.copy_((4 * each).round() / 4)
    q[:, 0], k[:, 0] = -64, 64


def loud(q, k, v):
    """For the first query, the key after its own has a score of 400."""
    q[:, 0], k[5, 0] = 0, 100
    q[0, 0] = 8


def poisoned(q, k, v):
    """NaN where nothing need be read."""
    k[8:] = v[8:] = math.nan


def spoiled(q, k, v):
    v[0, 0] = math.nan


def worlds():
    yield row("one tile", 4, 0, 4, 4)
    yield row("below the diagonal and on it", 4, 8, 12, 4)
    yield row("the last query at the start of a tile", 3, 6, 12, 4)
    yield row("more queries than keys of a tile", 7, 5, 12, 3, d=6, e=5)
    yield row("fewer queries than keys of a tile", 2, 5, 15, 5, d=9)
    yield row("a short last tile", 2, 13, 15, 4)
    yield row("one query, tiles of one key", 1, 3, 4, 1)
    yield row("a tile longer than the keys", 3, 0, 3, 8)
    yield row("large scores", 1, 11, 12, 4, size=100.0)
    yield row("low scores, near -2048", 4, 8, 12, 4, change=low, rtol=1e-3)
    yield row("a hidden key with a score of 400", 4, 4, 8, 4, change=loud)
    yield row("NaN in value 0, which every query sees", 4, 4, 8, 4, change=spoiled)
    yield row("NaN in keys and values from 8 on, which no query sees", 4, 4, 40, 4, change=poisoned)
    yield row("many keys", 8, MANY - 8, MANY, 8, measured=True)


RESCALED = "when a tile brings a larger maximum, what was added up before counts from the old one"
MASK = "torch.arange(first, first + len(keys)) > positions"
UNTIL = "range(0, min(len(k), start + len(q)), tile)"
LSE = "(maximum + total.log()).squeeze(1)"
OUT = "output = output * factor + weights @ values"
DIVIDED = "        maximum = highest\n    return output / total,"


@exercise(
    title="One row of tiles: the forward pass",
    minutes=30,
    difficulty=3,
    worlds=worlds,
    targets=[
        Own("neither the library's nor torch's attention", BY_HAND, SOLVED, torchs="attention"),
        Values(
            "out and lse of causal attention; tiles that are short, of one key, or longer than all keys; scores of "
            "some hundreds, and of -2048; a hidden key with a large one. NaN in a value that is seen comes out again",
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
            most=lambda case: case.facts,
        ),
    ],
    mistakes=[
        mistake("The scores are not divided by sqrt(d)", " / math.sqrt(q.shape[1])", ""),
        mistake("The scores are divided by d, where sqrt(d) is right", "math.sqrt(q.shape[1])", "q.shape[1]"),
        mistake("The output is not divided by total", "return output / total", "return output"),
        mistake(
            "The log-sum-exp lacks the maximum: the total counts from it, so it is maximum + log(total)",
            LSE,
            "total.log().squeeze(1)",
        ),
        mistake("The log-sum-exp is to the logarithm's base e, not 2", "total.log()", "total.log2()"),
        mistake("It is the sum, without the logarithm", LSE, "(maximum.exp() * total).squeeze(1)"),
        mistake(
            "No key is masked, and a query sees what comes after it. Are start + i and first + c compared, the "
            "positions of both?",
            MASK,
            "torch.arange(first, first + len(keys)) < 0",
            UNTIL,
            "range(0, len(k), tile)",
        ),
        mistake("The mask is off by one: a query does not see itself", MASK, MASK.replace(">", ">=")),
        mistake("The mask is off by one: a query sees the key after itself", MASK, MASK + " + 1"),
        mistake(
            "The mask counts queries from the tile's own first: query i of the tile stands at start + i",
            "torch.arange(start, start + len(q))",
            "torch.arange(len(q))",
        ),
        mistake(
            "The mask counts queries and keys from their tiles' own first: a tile below the diagonal needs no mask",
            "torch.arange(start, start + len(q))",
            "torch.arange(len(q))",
            "torch.arange(first, first + len(keys))",
            "torch.arange(len(keys))",
        ),
        mistake(
            "The rescaling is forgotten: " + RESCALED + ". Multiply total and output by exp(old - new)",
            "total * factor",
            "total",
            "output * factor",
            "output",
        ),
        mistake(f"The output is not rescaled: {RESCALED}", "output * factor", "output"),
        mistake(f"Total is not rescaled: {RESCALED}", "total * factor", "total"),
        mistake(
            "The output is divided by total with each tile, and added to as if it were not: divide once, at the end",
            DIVIDED,
            "        maximum = highest\n        output = output / total\n    return output,",
        ),
        mistake(
            "The output is divided by total with each tile, and at the end again: divide once, at the end",
            DIVIDED,
            "        maximum = highest\n        output = output / total\n    return output / total,",
        ),
        mistake(
            "The last tile that the queries see is not visited: the tile whose first key is the last query's own "
            "position counts, too",
            UNTIL,
            "range(0, min(len(k), start + len(q)) - 1, tile)",
        ),
        mistake(
            "The tile on the diagonal is not visited: keys from `start` on, where the queries stand, are seen, too",
            UNTIL,
            "range(0, start, tile)",
        ),
        mistake(
            "A last tile that is short is left out", UNTIL, "range(0, min(len(k) // tile * tile, start + len(q)), tile)"
        ),
        mistake(
            "Tiles right of the diagonal are visited: the last query stands at start + len(q) - 1, and a hidden NaN "
            "times 0 is NaN",
            UNTIL,
            "range(0, len(k), tile)",
        ),
        mistake(
            "Exp underflowed: less than -104 gives 0. The number subtracted must be the maximum of the scores itself",
            "(len(q), 1), -math.inf)",
            "(len(q), 1), 0.0)",
        ),
        mistake(
            "Exp is taken of large scores: subtract the maximum of the scores, so that exp is of at most 0",
            "highest = torch.maximum(maximum, scores.amax(1, keepdim=True))",
            "highest = torch.zeros(len(q), 1)",
            "(maximum - highest).exp()",
            "torch.ones(len(q), 1)",
        ),
        mistake(
            "Hidden keys have a finite score, and exp of it counts: it must be -inf",
            "positions, -math.inf)",
            "positions, -100.0)",
        ),
        mistake(
            "Hidden keys have a score of 0, and exp of it counts: it must be -inf",
            "positions, -math.inf)",
            "positions, 0.0)",
        ),
        mistake(
            "Mask the scores before the maximum: a hidden key has decided the unit",
            f"        scores = scores.masked_fill({MASK}, -math.inf)\n",
            "",
            "(scores - highest).exp()",
            f"(scores - highest).exp() * ~({MASK})",
        ),
        mistake(
            "What hides NaN (nan_to_num?) hides from its reader that the model has diverged",
            "return output / total, " + LSE,
            "return (output / total).nan_to_num(), " + LSE,
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
