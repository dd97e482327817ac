"""How many tokens does a GPU need, so that the gradients of experts hide behind backward?"""

import math

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, PLANNERS

MB = 1e6


def case(about, *arguments):
    return alone(lambda: arguments, about)


def test_cases():
    #              dense  expert experts chosen gradient bucket  rate  latency bandwidth
    yield case("a dense layer, fp32 gradients, one bucket", 67e6, 0, 0, 0, 4, 400 * MB, 791e12, 0.0, 170e9)
    yield case("the same with latency, in buckets of 100 MB", 67e6, 0, 0, 0, 4, 100 * MB, 791e12, 290e-6, 170e9)
    yield case("the same with bf16 gradients", 67e6, 0, 0, 0, 2, 100 * MB, 791e12, 290e-6, 170e9)
    yield case("8 experts, 2 of them for each token", 42e6, 176e6, 8, 2, 4, 100 * MB, 791e12, 290e-6, 170e9)
    yield case("128 experts, 4 of them for each token", 30e6, 25e6, 128, 4, 4, 1000 * MB, 791e12, 290e-6, 170e9)
    yield case("a slow network", 12e6, 0, 0, 0, 4, 25 * MB, 250e12, 50e-6, 12.5e9)
    yield case("a single small bucket", 1.5e6, 0, 0, 0, 2, 25 * MB, 250e12, 50e-6, 12.5e9)
    yield case("a GPU that computes slowly, where few tokens are enough", 3e6, 1e6, 4, 1, 4, 8 * MB, 1.1e12, 7e-6, 90e9)
    yield case("four full buckets, hidden to the moment", 2**20, 0, 0, 0, 4, 2**20, 2.0**40, 2.0**-12, 2.0**30)


def full(dense, expert, experts, chosen, gradient_bytes, bucket_bytes, rate, latency, bandwidth):
    buckets = math.ceil(gradient_bytes * (dense + experts * expert) / bucket_bytes)
    return math.ceil(buckets * (latency + bucket_bytes / bandwidth) * rate / (4 * (dense + chosen * expert)))


MET, ALL = "dense + chosen * expert", "dense + experts * expert"


@exercise(
    title="Tokens that hide the gradients of experts",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, PLANNERS),
        Values(
            "the smallest whole number of tokens: dense layers and layers of 4 to 128 experts, gradients of 2 and 4 "
            "bytes, one bucket and many, networks with and without latency",
            ways={"The last bucket travels as if it were full: it has only the bytes that are left": full},
        ),
    ],
    mistakes=[
        mistake(
            "All experts have a gradient that the ranks must average, not only those that a token meets",
            f"nbytes = gradient_bytes * ({ALL})",
            f"nbytes = gradient_bytes * ({MET})",
        ),
        mistake(
            "A token is computed by `chosen` of the experts: the other ones take no FLOPs for it",
            f"(4 * ({MET}))",
            f"(4 * ({ALL}))",
        ),
        mistake(
            "Backward has two matmuls for each forward one: 4 FLOPs for each token and parameter that it meets. (And "
            "latency + n / bandwidth is all that an all-reduce of n bytes takes)",
            "(4 * (",
            "(2 * (",
        ),
        mistake(
            "The forward pass is over when the first gradient is there: it hides nothing, so its 2 FLOPs do not count",
            "(4 * (",
            "(6 * (",
        ),
        mistake("Each bucket is an all-reduce of its own, and pays the latency", "buckets * latency", "latency"),
        mistake(
            "What does not fill a bucket needs one all the same: round their number up",
            "math.ceil(nbytes / bucket_bytes)",
            "max(1, math.floor(nbytes / bucket_bytes))",
        ),
        mistake(
            "A gradient has gradient_bytes bytes, which are not always 4",
            "nbytes = gradient_bytes *",
            "nbytes = 4 *",
        ),
        mistake("With a token less than needed it does not hide: round up", "math.ceil(seconds", "math.floor(seconds"),
    ],
    hints=[
        "Two times must meet: what the gradients of the layer take in all their all-reduces, and what backward of the "
        "layer takes for one token, times the tokens.",
        "Ask of each time which parameters count in it. All of them have a gradient. A token computes with few of "
        "them.",
        "The all-reduces take buckets x latency + nbytes / bandwidth, with ceil(nbytes / bucket_bytes) buckets. "
        "Backward takes 4 (dense + chosen x expert) / rate for each token.",
    ],
    why="A published number of tokens per GPU holds for one dtype of the gradients, one bucket size and a dense model. "
    "With experts all gradients travel and few parameters compute, so the number grows by about experts / chosen: one "
    "reason why experts are spread over the ranks (expert parallelism) and not copied to each.",
)
def tokens_to_hide(dense, expert, experts, chosen, gradient_bytes, bucket_bytes, rate, latency, bandwidth):
    """How many tokens does a GPU need, so that the all-reduces of a layer hide behind backward of a layer?

    Under data parallelism every rank has the whole layer: ``dense`` parameters, which each token meets, and
    ``experts`` experts of ``expert`` parameters each, of which a token meets ``chosen``. Only matmuls take time, at
    ``rate`` FLOP/s. A gradient has ``gradient_bytes`` bytes (4 in fp32, 2 in bf16). The layer's gradients travel in
    buckets of ``bucket_bytes``, the last of which may be smaller. An all-reduce of n bytes takes latency + n /
    bandwidth, one after the other. (All experts get some tokens, so that all have gradients.)

    Return the smallest whole number of tokens for which backward of the layer takes at least as long as all of its
    all-reduces.
    """
    # ? What travels, and what computes? How long does each take?
    nbytes = gradient_bytes * (dense + experts * expert)
    buckets = math.ceil(nbytes / bucket_bytes)
    seconds = buckets * latency + nbytes / bandwidth
    return math.ceil(seconds * rate / (4 * (dense + chosen * expert)))
