"""A ring, an all-gather or Ulysses for a model and a cluster, by bytes and seconds."""

import random

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, FORMULAS

COPIES = "max(kv_heads, ranks)"
RING = "step + (ranks - 1) * max(step, message)"
FITS = "heads % ranks == 0 and (kv_heads % ranks == 0 or ranks % kv_heads == 0)"


def case(about, *arguments):
    return alone(lambda: arguments, about)


def test_cases():
    #                tokens, heads, kv_heads, head_dim, ranks, flops, bandwidth, latency
    yield case("Llama 3 8B, 16 ranks, a fast network", 131_072, 32, 8, 128, 16, 700e12, 50e9, 1e-5)
    yield case("the same in a node", 65_536, 32, 8, 128, 8, 700e12, 450e9, 3e-6)
    yield case("as many KV heads as heads", 32_768, 32, 32, 128, 8, 700e12, 50e9, 1e-5)
    yield case("24 heads on 16 ranks", 131_072, 24, 8, 128, 16, 400e12, 25e9, 1e-5)
    yield case("6 KV heads on 4 ranks", 16_384, 12, 6, 64, 4, 300e12, 25e9, 1e-5)
    yield case("one KV head", 8_192, 16, 1, 128, 4, 300e12, 10e9, 1e-5)
    yield case("a short sequence, where latencies count", 2_048, 32, 8, 64, 8, 300e12, 200e9, 2e-5)
    yield case("one rank", 4_096, 8, 2, 64, 1, 300e12, 200e9, 1e-5)
    draw = random.Random(0)
    for number in range(4):
        ranks, kv_heads = draw.choice([2, 4, 8]), draw.choice([2, 4, 8])
        sizes = 1024 * ranks * draw.randint(1, 32), kv_heads * draw.choice([2, 4]), kv_heads, 64, ranks
        yield case(f"drawn, {number}", *sizes, 1e12 * draw.randint(50, 900), 1e9 * draw.randint(5, 400), 1e-5)


@exercise(
    title="Ring, all-gather or Ulysses?",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, FORMULAS),
        Values("bytes and seconds of each way, and the fastest; with 1 to 32 KV heads on 1 to 16 ranks"),
    ],
    mistakes=[
        mistake(
            "The mask hides half of the pairs: 4 FLOPs for each pair of a query and a key, and number of the width",
            "2 * tokens**2",
            "4 * tokens**2",
        ),
        mistake(
            "Keys and values have KV heads, of which there may be fewer than heads",
            "* kv_heads * head_dim",
            "* heads * head_dim",
        ),
        mistake(
            "A ring waits only for what is longer, its matmuls or its message",
            RING,
            "ranks * step + (ranks - 1) * message",
        ),
        mistake(
            "A ring has p steps, and one message fewer: with the last block nothing is on its way",
            RING,
            "ranks * max(step, message)",
        ),
        mistake(
            "With fewer KV heads than ranks, each goes to all ranks that read it: as many are sent as there are ranks",
            COPIES,
            "kv_heads",
        ),
        mistake(
            "Ulysses deals out whole heads: the ranks divide their number, and KV heads and ranks divide one another",
            FITS,
            "True",
        ),
        mistake(
            "Queries go there, and the output comes back: twice as many numbers as a queries' tensor has",
            "(2 * heads",
            "(heads",
        ),
        mistake("The fastest is asked for, and not the one that sends least", "seconds.get)", "sent.get)"),
    ],
    hints=[
        "First the time of attention alone on a rank, which is the same for all three: the pairs that the mask leaves, "
        "divided by the ranks. A step of the ring has a part in p of it.",
        "A block of K and V has 2 tensors of tokens/p x kv_heads x head_dim numbers, with 2 bytes each.",
        "Ulysses: of q, k, v and the output a rank keeps 1/p of its part, and sends the rest. Its bytes are those "
        "numbers, its latency that of p - 1 messages in each of four exchanges.",
    ],
    why="The three differ by what overlaps (the ring), what shrinks with the ranks (Ulysses) and what takes any mask "
    "(the all-gather). Such a prediction is where a choice begins: the notebook shows measurements in which bytes "
    "alone were misleading, so the next step is to time the best two.",
)
def choose_way(tokens, heads, kv_heads, head_dim, ranks, flops, bandwidth, latency):
    """Bytes that a rank sends and seconds that causal attention takes, forward, in 16 bits, by three ways; and the
    fastest.

    A sequence of ``tokens`` is dealt out zig-zag over ``ranks``. Attention runs at ``flops`` FLOP/s, of the pairs that
    the mask leaves: half of N x N for N tokens. Merging takes no time. A message takes ``latency`` plus its bytes over
    ``bandwidth``, and a rank sends one at a time.

    "ring": p steps with as many FLOPs each; a message with a block of K and V travels in all but the last step, and is
    hidden as far as the step lasts. "all-gather": p - 1 such messages, and then attention. "Ulysses": four all-to-alls
    (q, k, v, and the output), each of p - 1 messages, and attention; possible if the ranks divide the heads, and KV
    heads and ranks divide one another (of more ranks than KV heads, each gets the one that it reads).

    Return {"bytes": {way: ...}, "seconds": {way: ...}, "best": way}: of all three ways, -1 for what is not possible;
    and the fastest of those that are, of several the first in this order.
    """
    # ? How long does attention take on a rank, and how large is a block of K and V?
    attention = 2 * tokens**2 * heads * head_dim / ranks / flops
    block = 2 * 2 * tokens / ranks * kv_heads * head_dim
    # ? Bytes and seconds of each way.
    step, message = attention / ranks, latency + block / bandwidth
    sent = {"ring": (ranks - 1) * block, "all-gather": (ranks - 1) * block}
    seconds = {"ring": step + (ranks - 1) * max(step, message), "all-gather": (ranks - 1) * message + attention}
    if heads % ranks == 0 and (kv_heads % ranks == 0 or ranks % kv_heads == 0):
        traded = tokens / ranks * head_dim * (2 * heads + 2 * max(kv_heads, ranks))
        sent["Ulysses"] = 2 * traded * (ranks - 1) / ranks
        seconds["Ulysses"] = 4 * (ranks - 1) * latency + sent["Ulysses"] / bandwidth + attention
    best = min(seconds, key=seconds.get)
    return {"bytes": {"Ulysses": -1} | sent, "seconds": {"Ulysses": -1} | seconds, "best": best}
