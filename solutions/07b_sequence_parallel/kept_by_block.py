"""What a block keeps for backward on one of t ranks: gated or not, sequential or parallel, with few KV heads."""

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, FORMULAS

INPUTS = "norms * tokens * width // (ranks if sequence_parallel else 1)"
OWN_HEADS = "max(1, kv_heads // ranks)"


def case(about, *arguments):
    return alone(lambda: arguments, about)


def test_cases():
    #                tokens, width, heads, kv_heads, inner, gated, parallel, ranks, sequence_parallel
    yield case("Llama 3 70B on one rank", 8192, 8192, 64, 8, 28_672, True, False, 1, False)
    yield case("Llama 3 70B on 8 ranks", 8192, 8192, 64, 8, 28_672, True, False, 8, False)
    yield case("the same with sequence parallelism", 8192, 8192, 64, 8, 28_672, True, False, 8, True)
    shared = "Llama 3 70B with sequence parallelism on 16 ranks, of which two share a KV head"
    yield case(shared, 8192, 8192, 64, 8, 28_672, True, False, 16, True)
    yield case("a GPT without a gate", 2048, 6144, 64, 64, 24_576, False, False, 8, True)
    yield case("a parallel block, as PaLM's, with one KV head", 2048, 18_432, 48, 1, 73_728, True, True, 12, False)
    yield case("a parallel block without a gate, as GPT-J's", 2048, 4096, 16, 16, 16_384, False, True, 4, True)
    yield case("a toy on 3 ranks", 6, 12, 6, 3, 24, True, False, 3, True)


@exercise(
    title="What a block keeps",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, FORMULAS),
        Values("the bytes of each block, with and without a gate, in sequence and in parallel, on 1 to 16 ranks"),
    ],
    mistakes=[
        mistake(
            "A KV head is not cut: with more ranks than KV heads each rank keeps the keys and values of one",
            OWN_HEADS,
            "kv_heads / ranks",
        ),
        mistake(
            "Keys and values have KV heads, of which there may be fewer than query heads",
            OWN_HEADS,
            "heads // ranks",
        ),
        mistake(
            "With sequence parallelism a rank keeps its own tokens of what stands between the layers",
            INPUTS,
            "norms * tokens * width",
        ),
        mistake(
            "What enters the products has been gathered, and is kept whole on each rank",
            "entered = norms * tokens * width",
            f"entered = {INPUTS}",
        ),
        mistake(
            "In a parallel block attention and the MLP read the output of one norm: there is one input, and one output",
            "1 if parallel else 2",
            "2",
        ),
        mistake(
            "A gate keeps four tensors: gate and up, silu(gate), which the multiplication needs, and the product, "
            "which the last matmul needs",
            "4 if gated else 2",
            "3 if gated else 2",
        ),
        mistake(
            "The output of attention is kept, too: the product behind it needs its input",
            "(2 * heads // ranks + 2",
            "(heads // ranks + 2",
        ),
        mistake("In 16 bits a number has 2 bytes", "return 2 * (", "return 1 * ("),
    ],
    hints=[
        "Go through the block and write down the input of each product, of each norm, and both factors of a "
        "multiplication, element by element. Each tensor counts once, however many read it.",
        "Which of them have all channels of all tokens on every rank? Which have a rank's own heads, or its own part "
        "of the MLP? Sequence parallelism changes one kind of them.",
        "Queries and attention's output have H/t heads each, keys and values the rank's KV heads, at least one each.",
    ],
    why="Planners and papers have such a count for each kind of block. If you can make it, you need no table for the "
    "next block: parallel ones, as in GPT-J and PaLM, drop a norm, and an all-reduce in each direction besides.",
)
def kept_by_block(tokens, width, heads, kv_heads, inner, gated, parallel, ranks, sequence_parallel):
    """Bytes that a block keeps for backward on one of ``ranks`` ranks, for a sequence of ``tokens`` tokens in 16 bits.

    The block is ``x + attention(norm(x))`` and then ``x + mlp(norm(x))``, each with its own norm; or, if ``parallel``,
    ``x + attention(y) + mlp(y)`` with one y = norm(x). Attention has ``heads`` query heads and ``kv_heads`` KV heads,
    and is fused: it keeps queries, keys, values and its output, once each. The MLP is ``inner`` wide: with ``gated``
    down(silu(gate(y)) * up(y)), where nothing is computed twice, else down(gelu(up(y))). Statistics and biases are left
    out. The ranks divide the query heads and ``inner``; ``ranks`` divides ``kv_heads``, or ``kv_heads`` divides
    ``ranks``. With ``sequence_parallel`` tokens are cut between the layers, and what is gathered is kept.
    """
    head = width // heads
    # ? What is whole, what is a part, and what does sequence parallelism divide?
    norms = 1 if parallel else 2
    inputs = norms * tokens * width // (ranks if sequence_parallel else 1)
    entered = norms * tokens * width
    attention = tokens * head * (2 * heads // ranks + 2 * max(1, kv_heads // ranks))
    mlp = tokens * inner // ranks * (4 if gated else 2)
    return 2 * (inputs + entered + attention + mlp)
