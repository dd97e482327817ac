"""From how many rows on is a product compute-bound? For some products, no number of rows is enough."""

import math

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import A100, BY_HAND, H100, SOLVED


def case(about, k, n, peak, bandwidth, size=2):
    return alone(lambda: (k, n, peak, bandwidth, size), f"{about}: k={k}, n={n}, numbers of {8 * size} bits")


def on(device, about, k, n, dtype="bfloat16", size=2):
    return case(f"{about} on an {device}", k, n, device.peak_of(dtype), device.memory_bandwidth, size)


def test_cases():
    yield on(A100, "QKV of the notebook's layer", 6144, 2304)
    yield on(H100, "a square weight", 8192, 8192)
    yield on(A100, "scores of attention", 96, 2048)
    yield on(H100, "an MLP in 8 bits", 4096, 16384, "float8", 1)
    yield on(H100, "a projection in 32 bits", 4096, 1024, "float32", 4)
    yield case("a ridge of 128 FLOPs per byte", 512, 512, 128e12, 1e12)
    yield case("a ridge of 256 FLOPs per byte", 512, 512, 256e12, 1e12)
    yield case("a ridge of 1 FLOP per byte", 2, 3, 1e9, 1e9)
    yield case("a memory that is faster than arithmetic", 64, 32, 1e9, 1e12)


@exercise(
    title="From how many rows on?",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, SOLVED),
        Values(
            "the smallest whole number of rows; 0 where none is enough. For numbers of 1, 2 and 4 bytes, on an "
            "A100, an H100 and GPUs that do not exist"
        ),
    ],
    mistakes=[
        mistake(
            "The result counts, too: its m n numbers are written to memory",
            "ridge * size * (k + n)",
            "ridge * size * k",
        ),
        mistake(
            "Only the weights are counted. The m k numbers of the rows are read, and the m n of the result are written",
            "2 * k * n - ridge * size * (k + n)",
            "2 * k * n",
        ),
        mistake("A number has `size` bytes, not always 2", "ridge * size", "ridge * 2"),
        mistake("A product has 2 m k n FLOPs: each multiplication comes with an addition", "2 * k * n -", "k * n -"),
        mistake("The ridge counts FLOPs per byte, and a number has `size` bytes", "ridge * size", "ridge"),
        mistake("Round up: with a row less than needed it is still memory-bound", "math.ceil(", "math.floor("),
        mistake(
            "At the ridge itself both take equally long, and that counts as compute-bound: no row more is needed",
            "math.ceil(ridge * size * k * n / gain)",
            "math.floor(ridge * size * k * n / gain) + 1",
        ),
        mistake(
            "However many rows there are, this product stays left of the ridge: the answer is 0. With ever more rows "
            "its intensity comes to 2 k n / (size (k + n)), and no further",
            "gain <= 0",
            "gain == 0",
        ),
    ],
    hints=[
        "The intensity of the product grows with m. Write down its FLOPs and its bytes, and where the ridge is.",
        "It has 2 m k n FLOPs, and reads and writes size (m k + k n + m n) bytes. You look for the smallest m for "
        "which the first divided by the second is peak / bandwidth or more.",
        "Multiply by the bytes and bring all terms with m to one side: m (2 k n - ridge size (k + n)) is to be at "
        "least ridge size k n. What if the bracket is 0 or negative?",
    ],
    why="Below this number, rows are free: a server that writes text for 64 users at once takes as long for a step as "
    "for one. And products like those of attention never get there, which is why FlashAttention is worth the trouble.",
)
def rows_needed(k, n, peak, bandwidth, size):
    """From how many rows m on is the product of an m x k and a k x n matrix compute-bound?

    The GPU computes ``peak`` FLOP/s and moves ``bandwidth`` bytes/s, and a number has ``size`` bytes. Return the
    smallest whole m for which arithmetic takes as long as memory, or longer. Return 0 if there is no such m.
    """
    ridge = peak / bandwidth
    # ? Which FLOPs and bytes does the product have, and when do they meet at the ridge?
    gain = 2 * k * n - ridge * size * (k + n)
    if gain <= 0:
        return 0
    return math.ceil(ridge * size * k * n / gain)
