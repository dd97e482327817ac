"""Block-sparse attention forward over a layout: output and log-sum-exp, with short blocks and rows that see nothing."""

import math

import torch

from tinydist.lab.author import Flops, Memory, Own, Values, Wrong, alone, exercise, mistake

from .chapter import BY_HAND, SOLVED


class Blocks(Flops):
    """As many FLOPs as the reference; of any number of matmuls."""

    def judge(self, exercise, trial, right):
        (mine,), (its,) = self.seen(trial), self.seen(right)
        if sum(mine) > sum(its):
            raise Wrong(
                f"it multiplies matrices with {sum(mine):,} FLOPs, where {sum(its):,} are enough: blocks that the "
                "layout does not have must not be computed"
            )
        if sum(mine) < sum(its):
            raise Wrong(
                f"it multiplies matrices with {sum(mine):,} FLOPs, where {sum(its):,} are right: multiply matrices of "
                "torch, with @"
            )


def layout_of(rows):
    return torch.tensor([[cell == "x" for cell in row] for row in rows.split()])


def case(about, rows, queries, keys, size, scale=1.0, d=4, e=3, measured=False):
    def arguments():
        generator = torch.Generator().manual_seed(7)
        q, k, v = (torch.randn(*shape, generator=generator) for shape in ((queries, d), (keys, d), (keys, e)))
        return scale * q, k, v, layout_of(rows), size

    shape = f"{queries} quer{'y' if queries == 1 else 'ies'}, {keys} keys in blocks of {size}"
    return alone(arguments, f"{shape} ({about})", measured=measured)


FULL_ROWS = " ".join("x" + "." * 15 for _ in range(16))


def test_cases():
    yield case("one block", "x", 4, 4, 4)
    yield case("all blocks", "xx xx", 8, 8, 4)
    yield case("a diagonal", "x. .x", 8, 8, 4)
    yield case("the first and the last block of a row", "x.x .x. xxx", 12, 12, 4)
    yield case("a row that sees nothing", "x. .. .x", 12, 8, 4)
    yield case("the last block of keys is short", "xx .x", 8, 7, 4)
    yield case("the last block of queries is short", "x. xx", 5, 8, 4)
    yield case("blocks of one token", "x.x .x. ..x", 3, 3, 1)
    yield case("fewer blocks of queries than of keys", "x.xx", 3, 14, 4, d=6, e=5)
    yield case("large scores: exp of more than 88 is inf", "xx x.", 8, 8, 4, scale=100.0)
    yield case("many rows, one block each", FULL_ROWS, 512, 512, 32, measured=True)


@exercise(
    title="Attend by a layout",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("neither the library's nor torch's attention", BY_HAND, SOLVED, torchs="attention"),
        Values(
            "out and lse of attention over the keys of the blocks that are set; short blocks at both ends; rows "
            "without a block: zeros, and an lse of -inf; scores of some hundreds",
            names=("out", "lse"),
        ),
        Blocks("two products for each block that is set, and nothing for one that is not", name="blocks"),
        Memory(
            "the scores of a row of blocks at a time: with 16 rows of one block, 4,096 bytes of them, where "
            "those of 16 blocks have 65,536, and all scores of 512 queries a million",
            slack=32_768,
        ),
    ],
    mistakes=[
        mistake("The scores are not divided by sqrt(d)", " / math.sqrt(q.shape[1])", ""),
        mistake(
            "A row without a block keeps the lse of one that saw a key: its sum of exp is 0, and log 0 is -inf",
            "torch.full((len(q),), -math.inf)",
            "torch.zeros(len(q))",
        ),
        mistake(
            "Rows and columns of the layout are exchanged: layout[i, j] says whether the queries of block i see the "
            "keys of block j",
            "layout[row]",
            "layout.T[row % layout.shape[1]][: -(-len(k) // size)]",
        ),
        mistake(
            "The lse is that of the unscaled maximum: it is the log of the sum of exp of the row's scores",
            "scores.logsumexp(1)",
            "scores.amax(1)",
        ),
        mistake(
            "Each block has a softmax of its own, and their outputs are averaged: blocks with larger scores count "
            "more, so take one softmax over all keys that a query sees",
            "out[rows] = scores.softmax(1) @ v[keys]",
            "pairs = list(zip(scores.split(size, 1), v[keys].split(size)))\n"
            "            out[rows] = sum(some.softmax(1) @ values for some, values in pairs) / len(pairs)",
        ),
        mistake(
            "Each block has a softmax of its own, and their outputs are added up: weights sum to 1 over all keys that "
            "a query sees",
            "out[rows] = scores.softmax(1) @ v[keys]",
            "pairs = list(zip(scores.split(size, 1), v[keys].split(size)))\n"
            "            out[rows] = sum(some.softmax(1) @ values for some, values in pairs)",
        ),
        mistake(
            "Absent blocks are computed and then masked: gather the keys of the present ones first",
            "keys = places[seen]",
            "keys = places",
            "scores = q[rows] @ k[keys].T / math.sqrt(q.shape[1])",
            "scores = (q[rows] @ k[keys].T / math.sqrt(q.shape[1])).masked_fill(~seen, -math.inf)",
        ),
    ],
    hints=[
        "For each row of the layout: which keys do its queries see? A bool for each key will do, and then k[keys] and "
        "v[keys] gather them.",
        "layout[row].repeat_interleave(size) says it for each key; the last block may be short, so take len(k) of it.",
        "scores = q[rows] @ k[keys].T / sqrt(d); out is softmax(scores) @ v[keys], and lse scores.logsumexp(1).",
        "If a row has no block, leave its output zero and its lse -inf: begin with such tensors.",
    ],
    why="Gathering is all that block-sparse attention adds, and the kernels do the same with a list of blocks. With "
    "the lse, results over different layouts merge exactly (chapter 10): a window and some selected blocks may be "
    "computed apart, as long as no key is in both.",
)
def attend_by_layout(q, k, v, layout, size):
    """Attention over the blocks that a layout has: out [T, e] and the log-sum-exp of each query's scores, lse [T].

    q [T, d], k [S, d], v [S, e], float32; layout: bool [blocks of queries, blocks of keys], where layout[i, j] says
    that the queries of block i see the keys of block j. Blocks have ``size`` tokens; the last ones may be shorter. The
    scores are q k^T / sqrt(d). A query that sees nothing has an output of zeros and an lse of -inf.
    """
    # ? What do you begin with, for rows that see nothing?
    # ? For each row of the layout: which queries, and which keys? Their scores?
    # ? What does the row write into out and into lse?
    out, lse = torch.zeros(len(q), v.shape[1]), torch.full((len(q),), -math.inf)
    places = torch.arange(len(k))
    for row in range(len(layout)):
        rows = slice(row * size, (row + 1) * size)
        seen = layout[row].repeat_interleave(size)[: len(k)]
        keys = places[seen]
        if seen.any():
            scores = q[rows] @ k[keys].T / math.sqrt(q.shape[1])
            out[rows] = scores.softmax(1) @ v[keys]
            lse[rows] = scores.logsumexp(1)
    return out, lse
