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


ROUNDS = "rounds = math.ceil(blocks / gpu.sms)"


@exercise(
    title="Four versions",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("predicted, not asked of the library", BY_HAND, SOLVED),
        Part(
            "blocks",
            "blocks",
            "the thread blocks of all heads; of version 2 on an H100, 32 heads, 8,192 tokens: 2,048",
            tell=False,
        ),
        Part(
            "exchanged",
            "exchanged",
            "the bytes that the four warps write for one another, for a tile of scores",
            tell=False,
        ),
        Part(
            "seconds",
            "seconds",
            "of all blocks, in rounds; matmuls and exps one after the other, or at the same time",
            tell=False,
        ),
        Part("waits", "waits", "which of the two takes longer in a block", tell=False),
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
            "With split-K each of the four warps has a part for all queries of the tile: a maximum, a total, and an "
            "output",
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
