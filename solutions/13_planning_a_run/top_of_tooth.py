"""The number of tokens at which a matmul fills its waves best."""

import math

from tinydist.lab.author import Values, alone, exercise, mistake

from .chapter import BY_HAND

A100, H100 = 108, 132  # SMs

CASES = [  # about, columns, most, step, SMs
    ("4 SMs", 512, 1024, 64, 4),
    ("one SM", 300, 700, 100, 1),
    ("the up projection of Llama 2 70B, tp 8, A100", 7168, 4096, 64, A100),
    ("the same, H100", 7168, 4096, 64, H100),
    ("queries, keys and values of GPT-3, tp 8, A100", 4608, 2048, 128, A100),
    ("queries, keys and values of Llama 2 70B, tp 8, A100", 1280, 4096, 64, A100),
    ("at most one wave", 1280, 768, 128, H100),
    ("a vocabulary of 50,257, A100", 50257, 512, 8, A100),
    ("the most is the best", 13824, 512, 256, A100),
]


def test_cases():
    for about, *given in CASES:
        yield alone(lambda given=given: tuple(given), f"{about}: {given[0]:,} columns, up to {given[1]:,} tokens")


UPRIGHT = "math.ceil(tokens / 256) * math.ceil(columns / 128)"
FLAT = "math.ceil(tokens / 128) * math.ceil(columns / 256)"


@exercise(
    title="The top of a tooth",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        BY_HAND,
        Values("the number of tokens, its waves, and the part of them that is wasted, on GPUs of 1 to 132 SMs"),
    ],
    mistakes=[
        mistake(
            "A tile may lie either way: count the tiles of both, and take the fewer", "min(upright, flat)", "upright"
        ),
        mistake(
            "A wave that has begun takes as long as a full one: waves are whole",
            "math.ceil(min(upright, flat) / sms)",
            "min(upright, flat) / sms",
        ),
        mistake(
            "Where the tiles fill their last wave there is no wave more: round up, and do not add one",
            "math.ceil(min(upright, flat) / sms)",
            "min(upright, flat) // sms + 1",
        ),
        mistake(
            "A tile of which only a part is needed takes as long as a whole one: tiles are whole, in both directions",
            UPRIGHT,
            "tokens / 256 * columns / 128",
            FLAT,
            "tokens / 128 * columns / 256",
        ),
        mistake("The most tokens are allowed, too", "most + 1", "most"),
        mistake(
            "Where several numbers of tokens are as good, the smallest is asked for",
            "rate > fastest",
            "rate >= fastest",
        ),
        mistake("This is what is used: wasted is the rest", "1 - fastest", "fastest"),
        mistake(
            "This is the one with the fewest waves. Asked for is the one that computes most in each",
            "rate = tokens * columns / waves",
            "rate = 1 / waves",
        ),
    ],
    hints=[
        "Try all numbers of tokens in a loop. For each you need its tiles, its waves, and how much of the output one "
        "wave makes.",
        "The output is [tokens, columns]. With tiles of 256 rows and 128 columns there are ceil(tokens / 256) "
        "ceil(columns / 128) of them. A wave has as many tiles as there are SMs.",
        "All waves take the same time, so the rate is as tokens * columns / waves. A wave can hold sms * 256 * 128 "
        "numbers: what part of that is the best rate?",
    ],
    why="The microbatch is yours, and so is a vocabulary's padding: both move a matmul along its sawtooth, for "
    "free. But measure before you rely on it. Of the four matmuls of one layer that Vidur timed, some show such teeth "
    "and one hardly does, since cuBLAS has other tiles to choose from.",
)
def top_of_tooth(columns, most, step, sms):
    """A matmul has an output of [tokens, ``columns``]. Which number of tokens gets the most FLOPs per second?

    You may choose ``step``, 2 ``step``, and so on, up to ``most`` tokens. The GPU computes the output in tiles of 256 x
    128 numbers, ``sms`` tiles at a time: a wave. All tiles lie alike, with the 256 along the tokens or along the
    columns, whichever needs fewer tiles. Each wave takes as long as a full one, and each tile as long as a whole one;
    nothing else takes time.

    Return {"tokens": ..., "waves": ..., "wasted": ...}: the number of tokens (the smallest, if several are as good),
    its waves, and the part of all numbers computed in them, between 0 and 1, that is not of the output.
    """
    fastest, best = 0.0, None
    for tokens in range(step, most + 1, step):
        # ? How many tiles, and how many waves?
        upright = math.ceil(tokens / 256) * math.ceil(columns / 128)
        flat = math.ceil(tokens / 128) * math.ceil(columns / 256)
        waves = math.ceil(min(upright, flat) / sms)
        # ? Is it faster than all before?
        rate = tokens * columns / waves
        if rate > fastest:
            fastest, best = rate, {"tokens": tokens, "waves": waves}
    best["wasted"] = 1 - fastest / (sms * 256 * 128)
    return best
