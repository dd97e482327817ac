"""Tensor parallelism, ZeRO-3 or context parallelism: which is possible for a batch, and which sends least?"""

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, FORMULAS

TENSOR = "8 * sequences * tokens * width"
KEYS = "4 * sequences * tokens * width * kv_heads / heads"


def case(about, *arguments):
    return alone(lambda: arguments, about)


def test_cases():
    #                sequences, tokens, width, heads, kv_heads, parameters, ranks
    yield case("few short sequences, 8 ranks", 8, 1024, 4096, 32, 32, 12 * 4096**2, 8)
    yield case("many of them", 64, 1024, 4096, 32, 32, 12 * 4096**2, 8)
    yield case("one long sequence, 8 ranks", 1, 131_072, 8192, 64, 8, 855e6, 8)
    yield case("one short sequence, 8 ranks", 1, 2048, 8192, 64, 8, 855e6, 8)
    yield case("more ranks than sequences", 16, 8192, 8192, 64, 8, 855e6, 32)
    yield case("12 sequences on 8 ranks", 12, 8192, 4096, 32, 8, 218e6, 8)
    yield case("ranks that do not divide the heads", 1, 1200, 4096, 32, 8, 218e6, 12)
    yield case("a length that they do not divide", 4, 8200, 4096, 32, 8, 218e6, 16)
    yield case("as many keys as queries, one long sequence", 1, 65_536, 4096, 32, 32, 12 * 4096**2, 4)
    yield case("3 ranks, 6 sequences", 6, 4096, 3072, 24, 8, 110e6, 3)


@exercise(
    title="Which way to cut?",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, FORMULAS),
        Values("the way that sends least, and how many numbers; of batches of 1 to 64 sequences"),
    ],
    mistakes=[
        mistake(
            "ZeRO-3 needs a sequence for every rank, and as many for each",
            "if sequences % ranks == 0:",
            "if True:",
        ),
        mistake(
            "Tensor parallelism does not cut a head: ranks must divide their number",
            "if heads % ranks == 0:",
            "if True:",
        ),
        mistake(
            "Context parallelism cuts each sequence: ranks must divide its length, and not the tokens of the batch",
            "if tokens % ranks == 0:",
            "if sequences * tokens % ranks == 0:",
        ),
        mistake(
            "With context parallelism weights are sharded as well, by ZeRO-3 over the same ranks: they are gathered "
            "twice, and their gradients scattered",
            f"3 * parameters + {KEYS}",
            KEYS,
        ),
        mistake(
            "Keys and values have KV heads, of which there may be fewer than query heads",
            " * kv_heads / heads",
            "",
        ),
        mistake(
            "Keys and values are gathered forward, and their gradients are scattered backward: twice two tensors",
            "4 * sequences",
            "2 * sequences",
        ),
        mistake(
            "ZeRO-3 gathers weights twice, forward and backward, and scatters their gradients: three times",
            'ways["ZeRO-3"] = 3 * parameters',
            'ways["ZeRO-3"] = 2 * parameters',
        ),
        mistake(
            "Tensor parallelism has four all-reduces in a layer, and each sends twice its tensor",
            TENSOR,
            TENSOR.replace("8", "4"),
        ),
    ],
    hints=[
        "First write down when each of the three is possible at all, then what it sends.",
        "All three send (ranks - 1)/ranks of something: activations, weights, or weights and keys and values.",
        "Tensor parallelism: 8 tensors of the batch's activations. ZeRO-3: 3 times the parameters. Context "
        "parallelism: that, and keys, values and the gradients of both.",
    ],
    why="By bytes ZeRO-3 wins as soon as every rank can have a sequence with enough tokens. Below that, long sequences "
    "take context parallelism and short ones tensor parallelism, and large runs put them on top of one another.",
)
def which_way(sequences, tokens, width, heads, kv_heads, parameters, ranks):
    """The way to train a layer on ``ranks`` ranks that sends least, and the numbers that a rank sends for it per step.

    The batch has ``sequences`` of ``tokens`` each, the layer ``parameters`` parameters. All ways divide the parameters
    by the number of ranks.

    "tensor": all ranks work on all sequences. It is possible if ``ranks`` divides ``heads``.

    "ZeRO-3": each rank has its own sequences. It is possible if ``ranks`` divides ``sequences``. Weights are gathered
    in forward and again in backward, and their gradients are reduce-scattered.

    "context": each rank has its part of each sequence. It is possible if ``ranks`` divides ``tokens``. Keys and values
    are all-gathered in forward and kept, and their gradients reduce-scattered; weights go as with ZeRO-3.

    Return (way, numbers). At least one is possible.
    """
    ways = {}
    # ? When is each possible, and what does it send?
    if heads % ranks == 0:
        ways["tensor"] = 8 * sequences * tokens * width
    if sequences % ranks == 0:
        ways["ZeRO-3"] = 3 * parameters
    if tokens % ranks == 0:
        ways["context"] = 3 * parameters + 4 * sequences * tokens * width * kv_heads / heads
    way = min(ways, key=ways.get)
    return way, ways[way] * (ranks - 1) / ranks
