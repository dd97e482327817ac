"""Attention on several GPUs: what each holds and reads when heads are divided, or requests; and which way to take."""

from tinydist.lab.author import Own, Part, alone, exercise, mistake

from .chapter import SOLVED

BY_HAND = "here it is arithmetic, and yours"


def case(about, *arguments):
    return alone(lambda: arguments, about)


def test_cases():
    #               numbers, kv_heads, layers, weights, ranks, requests, tokens, memory
    yield case("MLA on 2 ranks", 20, 1, 3, 5000, 2, 6, 10, 40_000)
    yield case("8 KV heads on 2 ranks", 16, 8, 3, 9000, 2, 4, 10, 1e6)
    yield case("6 KV heads on 4 ranks", 16, 6, 3, 9000, 4, 8, 10, 1e6)
    yield case("2 KV heads on 8 ranks", 16, 2, 3, 9000, 8, 16, 10, 1e6)
    yield case("MLA, 5 requests on 4 ranks", 20, 1, 3, 1000, 4, 5, 10, 1e6)
    yield case("MLA, weights that do not fit whole", 20, 1, 3, 90_000, 4, 4, 100, 100_000)
    yield case("MLA, latents of all requests that do not fit", 20, 1, 3, 20_000, 4, 8, 100, 60_000)
    yield case("MLA, neither fits", 20, 1, 3, 20_000, 4, 8, 100, 40_000)
    yield case("the better way just fits", 20, 1, 3, 5000, 2, 6, 10, 8600)
    yield case("both read as much", 20, 1, 5, 8000, 2, 4, 10, 1e6)
    # DeepSeek-V3, sections 2.1.1 and 4.2, its weights in 8 bits; Llama 3 70B in 16 bits.
    yield case("DeepSeek-V3, 32 requests of 4,096 tokens", 576, 1, 61, 11.4e9, 8, 32, 4096, 60e9)
    yield case("DeepSeek-V3, 256 requests of 4,096 tokens", 576, 1, 61, 11.4e9, 8, 256, 4096, 60e9)
    yield case("Llama 3 70B, 256 requests of 4,096 tokens", 256, 8, 80, 24.2e9, 8, 256, 4096, 60e9)
    yield case("Llama 3 70B on 16 ranks", 256, 8, 80, 24.2e9, 16, 256, 4096, 60e9)
    yield case("one KV head of 128, as in multi-query attention", 256, 1, 32, 1e9, 8, 64, 8192, 30e9)


HEADS = "max(1, -(-kv_heads // ranks))"
ROWS = "-(-requests // ranks)"


OF_HEAD = "of_head = 2 * layers * tokens"
VARIANTS = [
    (
        "KV heads are whole, and are not divided: of 6 on 4 GPUs the busiest holds 2",
        HEADS,
        "max(1, kv_heads / ranks)",
    ),
    ("KV heads are whole, and the busiest has one more: of 6 on 4 GPUs it holds 2", HEADS, "max(1, kv_heads // ranks)"),
    ("A GPU holds the KV heads that its own query heads read, and not all", HEADS, "kv_heads"),
    ("Each GPU holds some KV heads where there are more than GPUs: of 6 on 4 GPUs the busiest holds 2", HEADS, "1"),
    (
        "Where there are fewer KV heads than GPUs each GPU holds one, a copy, and no more",
        HEADS,
        "-(-ranks // kv_heads)",
    ),
    ("A number of 16 bits has 2 bytes", OF_HEAD, "of_head = layers * tokens"),
    (
        "A number of 16 bits has 2 bytes, and `numbers` are those of keys and values together",
        OF_HEAD,
        "of_head = 4 * layers * tokens",
    ),
    ("Bytes are asked for: 16 bits are 2", OF_HEAD, "of_head = 16 * layers * tokens"),
    ("The cache of all layers is read: this is one", OF_HEAD, "of_head = 2 * tokens"),
    ("The cache of all tokens is read: this is one", OF_HEAD, "of_head = 2 * layers"),
    (
        "Where heads are divided, each GPU has its heads of all requests",
        "* numbers * requests * of_head",
        "* numbers * -(-requests // ranks) * of_head",
    ),
    ("All requests are read: this is one", "* numbers * requests * of_head", "* numbers * of_head"),
    ("The busiest GPU has one request more where they are not even", ROWS, "requests // ranks"),
    ("Where requests are divided, a GPU has its own, and not all", ROWS, "requests"),
    ("Where requests are divided, a GPU has all KV heads of its own", f"{ROWS} * kv_heads", ROWS),
    ("The weights are read in each step, too", "weights / ranks + max", "max"),
    ("The weights are read in each step, too", "weights + -(-", "-(-"),
    ("`weights` are those of all layers together", "weights / ranks + max", "layers * weights / ranks + max"),
    ("`weights` are those of all layers together", "weights + -(-", "layers * weights + -(-"),
    ("If both read as much it is heads", "by_heads <= by_requests", "by_heads < by_requests"),
    ("This is the way that reads more", "by_heads <= by_requests", "by_heads > by_requests"),
    (
        "It is neither if both do not fit, and not if one does not",
        "min(by_heads, by_requests) >",
        "max(by_heads, by_requests) >",
    ),
    ("What has just as many bytes as memory fits", ") > memory", ") >= memory"),
]


@exercise(
    title="Divide heads or requests?",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, (*SOLVED, "tinydist.serving", "tinydist.planner")),
        Part(
            "heads",
            "heads",
            "bytes that the busiest GPU reads if heads are divided: MLA, more KV heads than GPUs and fewer. "
            "DeepSeek-V3 with 32 requests of 4,096 tokens on 8 GPUs: 10.6 GB",
            variants=VARIANTS,
        ),
        Part(
            "requests",
            "requests",
            "the same if requests are divided, evenly and not. DeepSeek-V3, as above: 12.6 GB",
            variants=VARIANTS,
        ),
        Part("choice", "choice", "the way that reads less, if it fits; else neither", variants=VARIANTS),
    ],
    mistakes=[
        mistake(
            "The cache is divided by the number of GPUs. A KV head cannot be divided, and an MLA has one for all "
            "heads: each GPU that has some of its query heads needs all of it",
            HEADS + " * numbers",
            "kv_heads / ranks * numbers",
        ),
        mistake(
            "KV heads are whole: of 6 on 4 GPUs the busiest holds 2, and of 2 on 8 each GPU holds one, a copy",
            HEADS,
            "kv_heads // ranks",
        ),
        mistake(
            "Requests are whole: of 5 on 4 GPUs the busiest has 2",
            ROWS,
            "requests / ranks",
        ),
        mistake(
            "Where requests are divided, each GPU has the whole weights of the attention",
            "by_requests = weights +",
            "by_requests = weights / ranks +",
        ),
        mistake(
            "Where heads are divided, a GPU has its heads' part of the weights, not all",
            "by_heads = weights / ranks +",
            "by_heads = weights +",
        ),
        mistake(
            "Neither way fits: what a GPU reads in a step it also holds, and that is at most ``memory``",
            "min(by_heads, by_requests) > memory",
            "False",
        ),
    ],
    hints=[
        "What a GPU reads in a step is what it holds: its weights of the attention, and its part of the cache.",
        "Heads divided: query heads are dealt out, and a GPU needs each KV head that its query heads read. How many "
        "are that, of G on p GPUs, if G is larger than p? If it is smaller? An MLA is the case G = 1.",
        "Requests divided: whole weights, all heads, and a whole number of requests.",
    ],
    why="Serving systems have a switch for it because neither way is best: SGLang's --enable-dp-attention and vLLM's "
    "--data-parallel-size divide requests, --tp heads. What a GPU reads is a bound and not a speed: DeepSeek-R1 on 16 "
    "H20 served one request 43 % slower with divided requests, and 768 at once 40 % faster (SGLang's ablations).",
)
def divided_attention(numbers, kv_heads, layers, weights, ranks, requests, tokens, memory):
    """What the busiest of ``ranks`` GPUs reads in a step of decoding, and which way to divide the attention.

    In each of ``layers`` layers a token leaves ``numbers`` numbers of 16 bits for each KV head: 2 d in grouped-query
    attention, and c + r in MLA, which counts as one KV head (``kv_heads`` = 1). There are ``requests`` requests of
    ``tokens`` tokens. ``weights`` are the bytes of the attention's weights, in all layers together.

    Return {"heads": ..., "requests": ..., "choice": ...}: the bytes that the busiest GPU reads in a step, its weights
    and its part of the cache, once if heads are divided (tensor parallelism: whole KV heads, weights divided evenly),
    once if requests are (whole weights on each GPU). The choice is "heads" or "requests", whichever reads less; "heads"
    if both read as much; and "neither" if both have more bytes than ``memory``.
    """
    # ? bytes of one request, for one KV head, in all layers
    # ? what does the busiest GPU hold, each way?
    # ? which ways fit, and which reads least?
    of_head = 2 * layers * tokens
    by_heads = weights / ranks + max(1, -(-kv_heads // ranks)) * numbers * requests * of_head
    by_requests = weights + -(-requests // ranks) * kv_heads * numbers * of_head
    choice = "heads" if by_heads <= by_requests else "requests"
    if min(by_heads, by_requests) > memory:
        choice = "neither"
    return {"heads": by_heads, "requests": by_requests, "choice": choice}
