"""Flash attention forward, for one tile of queries: a row of tiles, in a window, with a sink."""

import math
from functools import partial

import torch

from tinydist.lab.author import Memory, Own, Varied, alone, exercise, mistake

from .chapter import BY_HAND, FLOAT, SOLVED, Visits, inputs, low, lowest, nothing

ENOUGH = 8 * 8 * (8 + 3 + 1) * FLOAT  # 8 tiles of 8 queries: scores of 8 keys, output, one number


def row(about, queries, start, keys, tile, window, sink=0.5, change=nothing, measured=False, rtol=1e-4, **how):
    where = f"{queries} quer{'y' if queries == 1 else 'ies'} from position {start}, {keys} keys, tiles of {tile} keys, "
    given = partial(inputs, queries, keys, change=change, **how)
    where += f"a window of {window}"
    return alone(lambda: (*given(), start, tile, window, sink), f"{where} ({about})", measured=measured, rtol=rtol)


def loud(q, k, v):
    """For the first query, the key after its own has a score of 400."""
    q[:, 0], k[5, 0] = 0, 100
    q[0, 0] = 8


def spoiled(q, k, v):
    v[0, 0] = math.nan


def test_cases():
    yield row("one tile", 4, 0, 4, 4, 8)
    yield row("the window begins inside of a tile", 4, 8, 12, 4, 6)
    yield row("the window begins with a tile", 4, 8, 12, 4, 5)
    yield row("a window of one: each query sees its own key", 3, 6, 12, 4, 1)
    yield row("more queries than keys of a tile", 7, 5, 12, 3, 4, d=6, e=5)
    yield row("fewer queries than keys of a tile", 2, 5, 15, 5, 3, d=9)
    yield row("the last tile is short, and is seen", 2, 13, 15, 4, 9)
    yield row("one query, tiles of one key", 1, 3, 4, 1, 2)
    yield row("a tile longer than the keys", 3, 0, 3, 8, 2)
    yield row("keys behind the last query, keys before the window", 4, 16, 40, 4, 6)
    yield row("a sink of 9, more than most scores", 4, 8, 12, 4, 6, sink=9.0)
    yield row("large scores: exp of more than 88 is inf, so take it of at most 0", 1, 11, 12, 4, 12, size=100.0)
    near = "scores and sink near -2048: exp of less than -104 is 0, so subtract the maximum itself"
    yield row(near, 4, 8, 12, 4, 6, sink=-2047.5, change=low, rtol=1e-3)
    lowest_one = (
        "query 0 sees one key, with a score of -10^12, and the sink is lower; hidden keys are lower still, -inf"
    )
    yield row(lowest_one, 4, 0, 4, 4, 4, sink=-(2.0**41), change=lowest)
    yield row("a hidden key has a score of 400: mask the scores before the maximum", 4, 4, 8, 4, 8, change=loud)
    seen = "NaN in value 0, which every query sees: who hides it, hides that the model has diverged"
    yield row(seen, 4, 4, 8, 4, 8, change=spoiled)
    yield row("many keys", 8, 152, 160, 8, 160, measured=True)


RESCALED = "when a tile brings a larger maximum, what was added up before counts from the old one"
SCALED, LOG = "math.sqrt(q.shape[1])", "maximum + total.log()"
BEGIN, END = "max(0, start - window + 1) // tile * tile", "min(len(k), start + len(q))"
VARIANTS = [
    ("The output is not divided by the total", "output / total", "output"),
    ("The scores are divided by d, or by its root twice: divide once by sqrt(d)", SCALED, "q.shape[1]"),
    ("The output is not rescaled: " + RESCALED, "output * factor", "output"),
    ("The total is not rescaled: " + RESCALED, "total * factor", "total"),
    (
        "The output is rescaled after the tile is added: rescale what was there before it, then add",
        "output * factor + weights @ values",
        "(output + weights @ values) * factor",
    ),
    (
        "A query does not see its own key here, which stands at its own position",
        "places > positions",
        "places >= positions",
    ),
    (
        "A query sees the key after its own, too: the mask is off by one",
        "places > positions",
        "places > positions + 1",
        END,
        "min(len(k), start + len(q) + 1)",
    ),
    (
        "The window is one key too narrow: a query sees `window` keys, with its own",
        "<= positions - window",
        "<= positions - window + 1",
    ),
    ("The window is ignored: keys far before a query are seen", "(places <= positions - window)", "False", BEGIN, "0"),
    ("The causal mask is missing: a query sees keys behind its own", "(places > positions) | ", ""),
    (
        "The first tile is left out where the window begins inside of it: it is the tile that holds the first query's "
        "first key",
        BEGIN,
        "-(-max(0, start - window + 1) // tile) * tile",
    ),
    (
        "The last tile is left out: it holds keys that the last queries see",
        END,
        "min(len(k), start + len(q)) - tile + 1",
    ),
    (
        "The sink is divided by sqrt(d), as if it was a product: it is a score as it is",
        "(len(q), 1), sink)",
        "(len(q), 1), sink / math.sqrt(q.shape[1]))",
    ),
    (
        "The sink is counted once for each tile: it is one score, beside all keys",
        "weights.sum(1, keepdim=True)",
        "weights.sum(1, keepdim=True) + (sink - highest).exp()",
    ),
    (
        "The lse is right but for the sink: it is of all scores, with the sink",
        LOG,
        "maximum + (total - (sink - maximum).exp()).log()",
    ),
    (
        "This is attention over the last tile alone: is the new maximum kept for the next round?",
        "maximum = highest",
        "maximum = maximum",
    ),
    (
        "Hidden keys have a score of 0, and exp(0) is 1: give them a score of -inf",
        "(hidden, -math.inf)",
        "(hidden, 0.0)",
    ),
    ("The lse is in base 2: it is a natural logarithm", LOG, "maximum + total.log2()"),
    ("This is the total, and not its logarithm", LOG, "maximum + total"),
    ("This is exp of what is asked for: lse is the logarithm", LOG, "maximum.exp() * total"),
]


@exercise(
    title="One row of tiles, in a window, with a sink",
    minutes=30,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        Own("neither the library's nor torch's attention", BY_HAND, SOLVED, torchs="attention"),
        Varied(
            "out and lse of causal attention in a window, with a sink; tiles that are short, of one key, or longer "
            "than all keys; scores of some hundreds, of -2048, and of -10^12; a hidden key with a large one. NaN in a "
            "value that is seen comes out again",
            names=("out", "lse"),
            variants=VARIANTS,
        ),
        Visits(
            "two matmuls for each tile of `tile` keys that a query sees, and no other: none before the window, none "
            "behind the diagonal"
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
            "The sink is left out: exp(sink) is a part of every total, though it brings no value",
            "torch.ones(len(q), 1)",
            "torch.zeros(len(q), 1)",
        ),
        mistake(
            "The window is one key too wide: a query sees `window` keys, with its own",
            "places <= positions - window",
            "places < positions - window",
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
        mistake(
            "Tiles before the window are visited: begin with the one that has the first query's first key",
            BEGIN,
            "0",
        ),
        mistake(
            "Tiles behind the diagonal are visited: the last key that is seen is the last query's own",
            END,
            "len(k)",
        ),
    ],
    hints=[
        "Without the sink nothing is known before the first tile. With it, one score is: maximum is the sink, total "
        "exp(sink - maximum), and output 0.",
        "Query i of the tile stands at p = start + i and sees the keys from p - window + 1 to p. Which is the first "
        "key that any of them sees, and in which tile is it? Which is the last?",
        "With new = torch.maximum(maximum, scores.amax(1, keepdim=True)): total and output are multiplied by "
        "exp(maximum - new), and then the tile's weights, exp(scores - new), are added.",
        "At the end, out is output / total, and lse is maximum + log(total), each [t]: squeeze(1).",
    ],
    why="gpt-oss attends so: every second layer has a window of 128, and each head a learned sink, so that a query may "
    "attend to nothing much. A row needs nothing of the other rows, so each goes to another thread block: that is the "
    "order of loops of FlashAttention-2.",
)
def flash_row(q, k, v, start, tile, window, sink):
    """Causal attention of one tile of queries in a window, with a sink, and the scores of one tile of keys at a time.

    q [t, d] stand at positions from ``start`` on; k [S, d] and v [S, e] at positions 0 to S - 1, and come in tiles of
    ``tile``. A query sees ``window`` keys, the last of which stands at its own position (fewer at the beginning). The
    scores are q k^T / sqrt(d). Softmax has one score more, ``sink``, a float: it takes a part of the weights, and has
    no value. Return the output [t, e] and the log-sum-exp of all scores of each query, with the sink, [t]. Tiles that
    no query sees are not visited.
    """
    positions = torch.arange(start, start + len(q))[:, None]
    # ? What is known before the first tile? Which tile is the first that is seen, and where does the last end?
    # ? For each tile: scores, and which of them are masked? The new maximum? What was added up so far, in its unit?
    # ? Which two tensors come back?
    maximum, total = torch.full((len(q), 1), sink), torch.ones(len(q), 1)
    output = torch.zeros(len(q), v.shape[1])
    for first in range(max(0, start - window + 1) // tile * tile, min(len(k), start + len(q)), tile):
        keys, values = k[first : first + tile], v[first : first + tile]
        scores = q @ keys.T / math.sqrt(q.shape[1])
        places = torch.arange(first, first + len(keys))
        hidden = (places > positions) | (places <= positions - window)
        scores = scores.masked_fill(hidden, -math.inf)
        highest = torch.maximum(maximum, scores.amax(1, keepdim=True))
        weights, factor = (scores - highest).exp(), (maximum - highest).exp()
        total = total * factor + weights.sum(1, keepdim=True)
        output = output * factor + weights @ values
        maximum = highest
    return output / total, (maximum + total.log()).squeeze(1)
