"""What four versions of flash attention do with a GPU, predicted: blocks, exchanges, time of matmuls and exps."""

import math
from typing import NamedTuple

from tinydist.lab.author import Own, Part, alone, exercise, mistake

from .chapter import BY_HAND, SOLVED


class Gpu(NamedTuple):
    name: str
    sms: int
    matmul: float  # FLOPs per second of all SMs, of matmuls in 16 bits
    exp: float  # exps per second of all SMs


# The H100's rates: Shah et al. 2024, FlashAttention-3, section 3.1. The others are made up.
H100 = Gpu("an H100", 132, 989e12, 3.9e12)
SLOW_EXP = Gpu("a GPU with 2.25 times the matmuls and as many exps", 148, 2225e12, 3.9e12)
FAST_EXP = Gpu("a GPU with many exps", 100, 200e12, 4e12)
CASES = [
    (1, H100, 32, 8192, 128),
    (2, H100, 32, 8192, 128),
    (3, H100, 32, 8192, 128),
    (4, H100, 32, 8192, 128),
    (1, H100, 200, 2048, 64),
    (2, H100, 16, 1000, 128),
    (1, FAST_EXP, 7, 1000, 64),  # the last tile is short
    (1, FAST_EXP, 300, 4096, 64),
    (2, FAST_EXP, 300, 4096, 64),
    (3, FAST_EXP, 8, 16_384, 128),
    (3, SLOW_EXP, 32, 8192, 128),
    (4, SLOW_EXP, 32, 8192, 128),
    (4, SLOW_EXP, 32, 8192, 64),
]


def test_cases():
    for version, gpu, heads, tokens, head_dim in CASES:
        about = f"FlashAttention-{version} on {gpu.name}: {gpu.sms} SMs, {gpu.matmul / 1e12:.0f} TFLOP/s, "
        about += f"{gpu.exp:.1e} exps per second; {heads} heads of {head_dim}, {tokens:,} tokens"
        yield alone(lambda each=(version, gpu, heads, tokens, head_dim): each, about)


OF_SCORES = (
    "This is the tile of scores: with split-K scores stay where they are, and outputs, maxima and totals are merged"
)
EXCHANGED, MATMUL, EXP = "4 * 4 * 128 * (head_dim + 2)", "matmul = 4 * queries", "exp = queries"
DOWN = "A short tile has a block, or a place in one, too: round up"


class Predicted(Part):
    """What is right is not told."""

    def __init__(self, name, holds, *variants):
        super().__init__(name, name, holds, tell=False, variants=variants)


ROUNDS = "rounds = math.ceil(blocks / gpu.sms)"


@exercise(
    title="Four versions",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("predicted, not asked of the library", BY_HAND, SOLVED),
        Predicted(
            "blocks",
            "the thread blocks of all heads; of version 2 on an H100, 32 heads, 8,192 tokens: 2,048",
            (DOWN, "math.ceil(tokens / 128)", "tokens // 128"),
            (
                "These are the blocks of one head",
                "heads if version == 1 else heads * tiles",
                "1 if version == 1 else tiles",
            ),
            (
                "These are the blocks that run at the same time: all that are started are asked for",
                '"blocks": blocks',
                '"blocks": min(blocks, gpu.sms)',
            ),
            (
                "There is a block for each tile of queries and tile of keys here: keys pass within a block",
                "heads * tiles",
                "heads * tiles * tiles",
            ),
        ),
        Predicted(
            "exchanged",
            "the bytes that the four warps write for one another, for a tile of scores",
            (
                "A maximum and a total of each row travel with the output: head_dim + 2 numbers",
                EXCHANGED,
                "4 * 4 * 128 * head_dim",
            ),
            (
                "A row has a maximum and a total: two numbers beside the output's",
                EXCHANGED,
                "4 * 4 * 128 * (head_dim + 1)",
            ),
            ("What is merged is in 32 bits: 4 bytes a number", EXCHANGED, "2 * 4 * 128 * (head_dim + 2)"),
            ("All four warps write: 4 parts, and not those of 3", EXCHANGED, "4 * 3 * 128 * (head_dim + 2)"),
            (
                "Each warp writes its part once, for all: not once for each other warp",
                EXCHANGED,
                "4 * 12 * 128 * (head_dim + 2)",
            ),
            (
                OF_SCORES,
                EXCHANGED,
                "4 * 128 * 128",
            ),
            (
                OF_SCORES,
                EXCHANGED,
                "4 * 4 * 128 * 128",
            ),
            (
                "One tile of scores is asked for: these are those of all tiles of queries",
                EXCHANGED,
                EXCHANGED + " * tiles",
            ),
            ("One tile of scores is asked for: these are those of all heads", EXCHANGED, EXCHANGED + " * heads"),
            (
                "These are maxima and totals alone: each warp has a part of the output, too",
                EXCHANGED,
                "4 * 4 * 128 * 2",
            ),
        ),
        Predicted(
            "seconds",
            "of all blocks, in rounds; matmuls and exps one after the other, or at the same time",
            (
                "It is as if there were half as many FLOPs: there are two matmuls, queries with keys and weights with "
                "values, with two FLOPs for each multiplication and its addition",
                MATMUL,
                "matmul = 2 * queries",
            ),
            (
                "A block runs on one SM, and has the rates of one: gpu.matmul / gpu.sms",
                "(gpu.matmul / gpu.sms)",
                "gpu.matmul",
                "(gpu.exp / gpu.sms)",
                "gpu.exp",
            ),
            (
                "A block of version 1 has all queries of a head, tile after tile",
                "tiles * 128 if version == 1 else 128",
                "128",
            ),
            (
                "A short tile takes as long as a whole one: count it as 128 queries",
                "tiles * 128 if version == 1 else 128",
                "tokens if version == 1 else min(128, tokens)",
            ),
            (
                "The last round is left out: it takes as long as the others",
                ROUNDS,
                "rounds = max(1, blocks // gpu.sms)",
            ),
            ("This is the time of one round: there are ceil(blocks / gpu.sms)", ROUNDS, "rounds = 1"),
            ("Blocks run gpu.sms at a time: this takes one after the other", ROUNDS, "rounds = blocks"),
            (
                "Version 4 computes a quarter of the exps elsewhere: three quarters are left, and not one",
                "3 / 4",
                "1 / 4",
            ),
            ("Exps are forgotten where they take longer, or add up", "exp = queries * tokens", "exp = 0 * tokens"),
            (DOWN, "math.ceil(tokens / 128)", "tokens // 128"),
            (
                "Matmuls and exps run at the same time from version 3 on: version 4 is one of these",
                "version >= 3",
                "version == 3",
            ),
            (
                "An exp is computed for each score: there are head_dim times fewer than that",
                EXP,
                "exp = head_dim * queries",
            ),
            (
                "Exps of one head and tile are queries x tokens: one for each score",
                "exp = queries * tokens",
                "exp = tokens",
            ),
        ),
        Predicted(
            "waits",
            "which of the two takes longer in a block",
            ("It is the other way round: the one that takes longer is asked for", "exp > matmul", "exp < matmul"),
        ),
    ],
    mistakes=[
        mistake(
            "Version 1 starts a block for each head. A block for each tile of queries came with version 2",
            "heads if version == 1 else heads * tiles",
            "heads * tiles",
        ),
        mistake(
            "Version 2 starts a block for each tile of queries: the order of the loops allows it",
            "heads if version == 1 else heads * tiles",
            "heads",
        ),
        mistake(
            "From version 2 on each warp has queries of its own (split-Q), so nothing is exchanged",
            "if version == 1:\n        exchanged",
            "if True:\n        exchanged",
        ),
        mistake(
            "It is a quarter of what is right: with split-K each of the four warps has a part for all queries of the "
            "tile, a maximum, a total, and an output, and a number has 4 bytes",
            "4 * 4 * 128 * (head_dim + 2)",
            "4 * 128 * (head_dim + 2)",
        ),
        mistake(
            "Rounds are whole: the last one takes as long as the others, though some SMs have no block then",
            ROUNDS,
            "rounds = blocks / gpu.sms",
        ),
        mistake(
            "Matmuls and exps run at the same time from version 3 on: there, the longer one counts",
            "max(matmul, exp) if version >= 3 else matmul + exp",
            "matmul + exp",
        ),
        mistake(
            "Versions 1 and 2 do matmuls and exps one after the other: their times add up",
            "max(matmul, exp) if version >= 3 else matmul + exp",
            "max(matmul, exp)",
        ),
        mistake(
            "Version 4 computes a quarter of the exps elsewhere, by polynomials: three quarters are left",
            "exp *= 3 / 4",
            "exp *= 1",
        ),
    ],
    hints=[
        "A block of version 1 has all queries of a head, else 128 of them (or what is left; count it as 128). How many "
        "blocks are there, and how many rounds, if each SM takes one at a time?",
        "A block with n queries does 4 n tokens head_dim FLOPs in matmuls, and n tokens exps. It runs on one SM, which "
        "has gpu.matmul / gpu.sms and gpu.exp / gpu.sms.",
        "Split-K: four warps with a part [128, head_dim + 2] each, of 4 bytes a number. Split-Q: torch.cat.",
        "One after the other is a sum, at the same time a maximum. In version 4 exps are 3/4 of what they were, before "
        "you compare.",
    ],
    why="Each version takes away what limited the one before: idle SMs and exchanges, then the turns, then the exps. "
    "It is a model: real kernels also wait for loads, rescale, and start late, so what they reach is less, and a GPU "
    "with other rates turns the order round.",
)
def time_of_versions(version, gpu, heads, tokens, head_dim):
    """Predict what a version of flash attention does with a GPU, forward, without a mask.

    ``version`` is 1, 2, 3 or 4. There are ``heads`` heads in all, each with ``tokens`` queries and as many keys; tiles
    have 128 queries, and a short one takes as long as a whole one. An SM runs one thread block at a time, and all have
    the same share of ``gpu.matmul``, FLOPs per second, and of ``gpu.exp``, exps per second; ``gpu.sms`` is their
    number. Two matmuls and one exp for each score are all that takes time. Version 4 computes a quarter of the exps by
    polynomials here, in units that are idle: they take no time. Four warps share a tile; what they merge is in 32 bits.

    Return {"blocks": ..., "exchanged": ..., "seconds": ..., "waits": ...}: the thread blocks; the bytes that the warps
    of one block write for one another, for each tile of scores; the time of all blocks; and which of "matmul" and "exp"
    takes longer in a block.
    """
    # ? How many blocks are started, and how many queries has each?
    # ? Do the warps of a block have parts of the same queries?
    # ? How long do the matmuls of a block take, and its exps? One after the other?
    # ? How many rounds?
    tiles = math.ceil(tokens / 128)
    blocks = heads if version == 1 else heads * tiles
    queries = tiles * 128 if version == 1 else 128
    exchanged = 0
    if version == 1:
        exchanged = 4 * 4 * 128 * (head_dim + 2)
    matmul = 4 * queries * tokens * head_dim / (gpu.matmul / gpu.sms)
    exp = queries * tokens / (gpu.exp / gpu.sms)
    if version == 4:
        exp *= 3 / 4
    rounds = math.ceil(blocks / gpu.sms)
    seconds = rounds * (max(matmul, exp) if version >= 3 else matmul + exp)
    waits = "exp" if exp > matmul else "matmul"
    return {"blocks": blocks, "exchanged": exchanged, "seconds": seconds, "waits": waits}
