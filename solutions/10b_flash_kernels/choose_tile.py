"""The tile of a kernel, chosen for a GPU's memories, and what it loads, predicted."""

import math
from typing import NamedTuple

from tinydist.lab.author import Own, Varied, alone, exercise, mistake

from .chapter import BY_HAND, SOLVED


class Gpu(NamedTuple):
    name: str
    shared: int  # bytes of shared memory that a program may have
    registers: int  # bytes of registers for its output and its scores
    stages: int  # tiles of keys, and of values, that are in shared memory at once
    needed: float  # FLOPs for each byte that it loads, without which it waits


HALF = 131_072  # bytes: of the registers of an SM. Addresses, and weights in 16 bits, take others
# The H100's: what Triton grants a program of shared memory, and 989 TFLOP/s with 12 TB/s of its L2 cache (Shah et al.
# 2024, FlashAttention-3, table 1). The others are made up.
GPUS = [
    (Gpu("little shared memory", 21_000, 224_000, 3, 40.0), 32, 1024),  # what is wrong of either memory shows there
    (Gpu("few registers", 100_000, 10_000, 1, 40.0), 48, 2000),
    (Gpu("many registers", 30_000, 2_000_000, 1, 100.0), 80, 4000),
    (Gpu("many registers", 60_000, 2_000_000, 1, 40.0), 80, 60),  # several tiles have one program
    (Gpu("an H100", 232_448, HALF, 2, 82.4), 128, 16_384),
    (Gpu("an H100", 232_448, HALF, 2, 82.4), 64, 16_384),
    (Gpu("an H100", 232_448, HALF, 2, 82.4), 256, 16_384),
    (Gpu("less shared memory", 101_376, HALF, 2, 150.0), 128, 3000),
    (Gpu("just as many FLOPs as it needs", 232_448, HALF, 2, 120.0), 128, 1500),
]


def test_cases():
    for gpu, head_dim, tokens in GPUS:
        about = f"{gpu.name}: {gpu.shared:,} bytes of shared memory, {gpu.registers:,} of registers, {gpu.stages} "
        about += f"stage{'s' * (gpu.stages > 1)}; heads of {head_dim}, {tokens:,} tokens"
        yield alone(lambda each=(gpu, head_dim, tokens): each, about)


class Predicted(Varied):
    """Of what came back, that under these names. What is right is not told."""

    def __init__(self, name, holds, *parts, variants=()):
        super().__init__(holds, tell=False, variants=variants)
        self.name, self.parts = name, parts

    def seen(self, trial):
        found = super().seen(trial)
        return found and {place: each for place, each in found.items() if place[1] in self.parts}


BEST = '(tile["bytes"], -tile["keys"])'
ONCE = "Keys and values are counted once, but each program loads all of them"


@exercise(
    title="A tile for a GPU",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("predicted, not asked of the library", BY_HAND, SOLVED),
        Predicted(
            "tile",
            "it fits both memories, loads the fewest bytes, and has as many keys as there is room for. An H100, with "
            "heads of 128 numbers: 128 queries, 128 keys",
            "queries",
            "keys",
            variants=[
                ("In shared memory numbers are in 16 bits: 2 bytes", "shared = 2 *", "shared = 4 *"),
                ("Bytes are asked for in shared memory: a number of 16 bits has 2", "shared = 2 *", "shared = "),
                ("Bytes are asked for in registers: a number of 32 bits has 4", "registers = 4 *", "registers = "),
                (
                    "The queries are in shared memory, too, beside keys and values",
                    "(queries + gpu.stages",
                    "(gpu.stages",
                ),
                ("In registers is the output, too, beside the scores", "(head_dim + keys)", "keys"),
                (
                    "The queries are staged here: they are loaded once, and only keys and values pass",
                    "(queries + gpu.stages * 2 * keys)",
                    "gpu.stages * (queries + 2 * keys)",
                ),
                (
                    "What takes all of a memory, to the byte, fits: at most",
                    "<= gpu.shared and registers <=",
                    "< gpu.shared and registers <",
                ),
                (
                    "Of several that load as few bytes the one with the most keys is asked for, not the most queries",
                    BEST,
                    '(tile["bytes"], -tile["queries"], -tile["keys"])',
                ),
                (
                    "Of several that load as few bytes the one with the most keys is asked for, not the largest tile",
                    BEST,
                    '(tile["bytes"], -tile["queries"] * tile["keys"])',
                ),
                (
                    "The fewest bytes come first: the keys count among tiles that load as few",
                    BEST,
                    '(-tile["keys"], tile["bytes"])',
                ),
                (
                    "The fewest bytes are asked for, and not the largest tile",
                    BEST,
                    '-tile["queries"] * tile["keys"]',
                ),
                ("It does not look at the registers", " and registers <= gpu.registers", ""),
                ("It does not look at the shared memory", "shared <= gpu.shared and ", ""),
                (
                    "Only keys of 16 to 128 and the like are tried here: powers of 2. They are multiples of 16",
                    "range(16, 1025, 16)",
                    "(16, 32, 64, 128, 256, 512, 1024)",
                ),
                (
                    "Keys are loaded as they are: a short last tile is no larger. So tiles of keys do not change "
                    "the bytes",
                    "(tokens + programs * 2 * tokens)",
                    "(tokens + programs * 2 * math.ceil(tokens / keys) * keys)",
                ),
            ],
        ),
        Predicted(
            "bytes",
            "what all programs of a head load; with a last tile that is short, too",
            "bytes",
            variants=[
                ("Each program loads its queries, too", "(tokens + programs", "(programs"),
                ("A program loads keys, and as many values", "programs * 2 * tokens", "programs * tokens"),
                ("Numbers are in 16 bits: 2 bytes", "nbytes = 2 *", "nbytes = 4 *"),
                ("Bytes are asked for: a number of 16 bits has 2", "nbytes = 2 *", "nbytes = "),
                (
                    "A short last tile of queries loads what it has, and no more",
                    "(tokens + programs",
                    "(programs * queries + programs",
                ),
                (
                    "What is stored is not loaded: the output is not asked for",
                    "(tokens + programs",
                    "(2 * tokens + programs",
                ),
                (
                    "A program loads its queries once, and not once for each tile of keys",
                    "(tokens + programs",
                    "(math.ceil(tokens / keys) * tokens + programs",
                ),
                ("The numbers of one column are counted: a vector has head_dim", "nbytes = 2 * head_dim", "nbytes = 2"),
                (
                    "The number of programs is a whole one, rounded up",
                    "math.ceil(tokens / queries)",
                    "tokens / queries",
                ),
            ],
        ),
        Predicted(
            "waits",
            "whether there are fewer FLOPs for each of these bytes than the GPU needs",
            "waits",
            variants=[
                (
                    "These are too few FLOPs: there are two matmuls of tokens x tokens x head_dim, with two FLOPs for "
                    "each multiplication and its addition",
                    "flops = 4 *",
                    "flops = 2 *",
                ),
                (
                    "As many FLOPs as it needs are enough: it waits where there are fewer",
                    '/ best["bytes"] <',
                    '/ best["bytes"] <=',
                ),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "A stage has a tile of keys and a tile of values: two tensors in shared memory",
            "gpu.stages * 2 * keys",
            "gpu.stages * keys",
        ),
        mistake(
            "The stages are not counted: so many tiles of keys and values are in shared memory at once",
            "gpu.stages * 2 * keys",
            "2 * keys",
        ),
        mistake(
            "Output and scores are sums, and kept in 32 bits: 4 bytes a number", "registers = 4 *", "registers = 2 *"
        ),
        mistake(
            "In registers are the output and the scores of a tile: queries x head_dim numbers, and queries x keys",
            "queries * (head_dim + keys)",
            "queries * head_dim",
        ),
        mistake(
            "There is room for more keys, with as many queries: it loads as many bytes in fewer rounds",
            BEST,
            '(tile["bytes"], tile["keys"])',
        ),
        mistake(
            "The last tile of queries may be short, and has a program, too: round their number up",
            "math.ceil(tokens / queries)",
            "tokens // queries",
        ),
        mistake(
            ONCE,
            "programs * 2 * tokens",
            "2 * tokens",
        ),
        mistake(
            "It is the other way round: it waits where it does fewer FLOPs with a byte than the GPU needs",
            '/ best["bytes"] <',
            '/ best["bytes"] >',
        ),
    ],
    hints=[
        "There are not many tiles. Try them all, and keep those that fit.",
        "In shared memory are queries x head_dim numbers, and for each stage keys x head_dim, twice. In registers are "
        "queries x head_dim numbers, and queries x keys.",
        "A program loads its own queries, and all keys and values. So what is loaded in all depends on the number of "
        "programs, and not on the size of a tile of keys.",
        "min() of tuples compares their first numbers, and the second ones where the first are equal. FLOPs: two "
        "matmuls of tokens x tokens x head_dim, with two FLOPs for each multiplication and its addition.",
    ],
    why="More queries in a tile are fewer programs, and each of these loads all keys again: the number of queries "
    "decides the bytes, and the registers decide the queries. With heads of 256 there is room for half as many, and "
    "the kernel waits: so there the library's own, configs.py, gives half of the registers to the output alone.",
)
def choose_tile(gpu, head_dim, tokens):
    """Choose the tile of a flash attention kernel, forward, without a mask, in 16 bits, and predict what it loads.

    Each program, a thread block on an SM, has a tile of queries, and all keys pass, in tiles. In shared memory it has
    its queries, and ``gpu.stages`` tiles of keys and as many of values, in 16 bits: at most ``gpu.shared`` bytes
    together. In registers it has its output and the scores of one tile, in 32 bits: at most ``gpu.registers`` bytes
    together. The number of queries of a tile is a power of 2 from 16 to 1024, that of keys a multiple of 16, to 1024.

    Of the tiles that fit, choose the one that loads the fewest bytes; of several, the one with the most keys. Return
    {"queries": ..., "keys": ..., "bytes": ..., "waits": ...}: the tile; the bytes that all programs of one head of
    ``tokens`` queries and as many keys load; and whether they wait for these, as they do if there are fewer than
    ``gpu.needed`` FLOPs (of the two matmuls) for each byte. The last tile may be short.
    """
    fitting = []
    for queries in (16, 32, 64, 128, 256, 512, 1024):
        for keys in range(16, 1025, 16):
            # ? what does this tile have in shared memory, and in registers? Does it fit?
            # ? if it does: what do all programs load?
            shared = 2 * head_dim * (queries + gpu.stages * 2 * keys)
            registers = 4 * queries * (head_dim + keys)
            if shared <= gpu.shared and registers <= gpu.registers:
                programs = math.ceil(tokens / queries)
                nbytes = 2 * head_dim * (tokens + programs * 2 * tokens)
                fitting.append({"queries": queries, "keys": keys, "bytes": nbytes})
    # ? which of the tiles that fit is the best, and does it wait?
    best = min(fitting, key=lambda tile: (tile["bytes"], -tile["keys"]))
    flops = 4 * tokens * tokens * head_dim
    return best | {"waits": flops / best["bytes"] < gpu.needed}
