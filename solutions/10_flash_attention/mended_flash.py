"""Flash attention with four bugs, all of which many inputs do not show."""

import math

import torch

from tinydist.lab.author import Flops, Memory, Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, FLOAT, SOLVED, inputs, low, lowest

ENOUGH = (10 * 8 * (8 + 3 + 1) + 8 * 3) * FLOAT  # 10 tiles of 8 queries: scores of 8 keys, output, one number; and out


def whole(about, queries, keys, tile, measured=False, rtol=1e-4, **how):
    where = f"{queries} queries, {keys} keys, tiles of {tile} ({about})"
    return alone(lambda: (*inputs(queries, keys, **how), tile), where, measured=measured, rtol=rtol)


def spoiled(q, k, v):
    v[-1] = math.nan


def test_cases():
    yield whole("one tile", 4, 4, 4)
    yield whole("three tiles by three", 12, 12, 4)
    near = "scores near -2048: exp of less than -104 is 0, so subtract the maximum itself, wherever that is finite"
    yield whole(near, 8, 8, 4, change=low, rtol=1e-3)
    yield whole("large scores", 8, 8, 4, size=100.0)
    yield whole("query 0 sees one key, with a score of -10^12; hidden ones are lower, -inf", 4, 4, 4, change=lowest)
    yield whole("more keys", 8, 16, 4, d=9, e=5)
    yield whole("the diagonal leaves by a tile's corner", 4, 9, 4, d=6)
    yield whole("tiles of one", 3, 3, 1)
    yield whole("more queries: the first two see nothing, and get zeros", 8, 6, 4)
    yield whole("more queries: the first two tiles see nothing, and get zeros", 12, 2, 4)
    yield whole("short last tiles, of 2 queries and 2 keys", 10, 10, 4)
    yield whole("short last tiles, of other lengths", 5, 11, 3)
    yield whole("a tile longer than all", 3, 3, 8)
    last = "NaN in the last value: the last query sees it, nan_to_num would hide it; the others do not visit its tile"
    yield whole(last, 9, 9, 4, change=spoiled)
    yield whole("many keys", 8, 160, 8, measured=True)


LENGTH = "        t = len(queries)  # the last tile may be short\n"
LOOP = "            if first > positions[-1]:  # the last query sees the key at its own position"
FINITE = "            finite = highest.clamp(min=torch.finfo(highest.dtype).min)  # -inf - -inf would be NaN\n"
HIDDEN = "torch.arange(first, first + len(keys)) > positions"
OLD = "when a tile brings a larger maximum, what was added up before counts from the old one"


@exercise(
    title="Find four bugs",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("neither the library's nor torch's attention", BY_HAND, SOLVED, torchs="attention"),
        Values(
            "causal attention, with as many queries as keys, with fewer, with more; lengths that do not divide into "
            "tiles, also tiles that are longer than all; scores of -2048, and of -10^12. Zeros for a query that sees "
            "no key, no NaN. NaN in a value that is seen comes out again",
        ),
        Flops(
            "two matmuls for each tile of `tile` queries and keys, none right of the diagonal",
            name="visits",
        ),
        Memory(
            "a tile of scores at a time, also with 160 keys. Which of your tensors grows with the length?",
            most=lambda case: ENOUGH,
        ),
    ],
    mistakes=[
        mistake(
            "The last tile is short. Which tensors beside it have the length of a whole tile?",
            LENGTH,
            "",
            "start + t)",
            "start + tile)",
            "(t, ",
            "(tile, ",
            given=True,
        ),
        mistake(
            "A tile of keys is left out: one whose first key stands where the last query of the tile stands is seen by "
            "that query",
            LOOP,
            "            if first >= positions[-1]:",
            given=True,
        ),
        mistake(
            f"The rescaling is forgotten: {OLD}. Total and output, both, are multiplied by exp(old - new)",
            "output * (maximum - finite).exp()",
            "output",
            given=True,
        ),
        mistake(
            "Where a query has seen no key yet, its maximum is -inf, and -inf - -inf is NaN, as 0 / 0 is. What do you "
            "subtract instead, so that exp gives 0?",
            FINITE,
            "",
            "finite)",
            "highest)",
            given=True,
        ),
        mistake(f"Total is not rescaled: {OLD}", "total * (maximum - finite).exp()", "total"),
        mistake(
            "The scores are divided by sqrt(d) twice: the queries are divided already",
            "queries @ keys.T",
            "queries @ keys.T / math.sqrt(q.shape[1])",
        ),
        mistake("The mask is off by one: a query does not see itself", HIDDEN, HIDDEN.replace(">", ">=")),
        mistake(
            "The first query stands beside the first key here. The last one stands beside the last key: query i at i "
            "+ S - T",
            " + len(k) - len(q)\n",
            "\n",
        ),
    ],
    hints=[
        "The first one raises an error. Which tensors are made for a whole tile, and how many queries has the last?",
        "Follow what was added up when a tile brings a larger maximum: from which maximum does total count, from "
        "which output?",
        "positions[-1] is where the last query of the tile stands. Which is the first key that it does not see? Look "
        "for lengths where a tile of keys begins right there.",
        "Where every score of a query was masked so far, its maximum is -inf. Subtract "
        "highest.clamp(min=torch.finfo(highest.dtype).min) instead, in both exponents: exp(-inf - a finite number) "
        "is 0.",
    ],
    why="Each of these bugs is silent on some lengths: on the ones in a first test, often. That is why attention "
    "kernels are tested with lengths around the tile, with more and with fewer queries than keys, and against the "
    "naive one in fp64.",
)
def mended_flash(q, k, v, tile):
    """Mend this flash attention: it has four bugs.

    Causal attention of q [T, d], k [S, d], v [S, e] in tiles of ``tile`` queries and as many keys. The last query
    stands beside the last key: query i at position i + S - T, and it sees the keys up to there. One that sees none gets
    zeros.
    """
    out = torch.zeros(len(q), v.shape[1])
    for start in range(0, len(q), tile):
        queries = q[start : start + tile] / math.sqrt(q.shape[1])
        t = len(queries)  # the last tile may be short
        positions = torch.arange(start, start + t)[:, None] + len(k) - len(q)
        maximum = torch.full((t, 1), -math.inf)
        total, output = torch.zeros(t, 1), torch.zeros(t, v.shape[1])
        for first in range(0, len(k), tile):
            if first > positions[-1]:  # the last query sees the key at its own position
                break
            keys, values = k[first : first + tile], v[first : first + tile]
            scores = queries @ keys.T
            scores = scores.masked_fill(torch.arange(first, first + len(keys)) > positions, -math.inf)
            highest = torch.maximum(maximum, scores.amax(1, keepdim=True))
            finite = highest.clamp(min=torch.finfo(highest.dtype).min)  # -inf - -inf would be NaN
            weights = (scores - finite).exp()
            total = total * (maximum - finite).exp() + weights.sum(1, keepdim=True)
            output = output * (maximum - finite).exp() + weights @ values
            maximum = highest
        out[start : start + tile] = output / total.clamp(min=1)  # the maximum alone gives 1
    return out
