"""The largest useful number of GPUs for a layer, in nodes joined by a network."""

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, FORMULAS

SENT = "16 * tokens * width / bandwidth * (t - 1) / t"
FASTEST = "nvlink if t <= per_node else network"


def case(about, *arguments):
    return alone(lambda: arguments, about)


def test_cases():
    #                seconds, whole, tokens, width, heads, per_node, nvlink, network, least
    yield case("Llama 3 70B, half useful", 0.1387, 3.35e-3, 16_384, 8192, 64, 8, 480e9, 480e9, 0.5)
    yield case("the same, a slow network beyond a node of 8", 0.1387, 3.35e-3, 16_384, 8192, 64, 8, 480e9, 40e9, 0.5)
    yield case("a rack that NVLink joins", 0.1387, 3.35e-3, 16_384, 8192, 64, 72, 480e9, 40e9, 0.5)
    yield case("four fifths useful", 0.1387, 3.35e-3, 16_384, 8192, 64, 72, 480e9, 40e9, 0.8)
    yield case("a narrow layer", 0.0251, 1.13e-3, 16_384, 3072, 32, 8, 480e9, 160e9, 0.5)
    yield case("wires half as fast", 0.05, 1e-3, 8192, 6144, 64, 64, 235e9, 25e9, 0.5)
    yield case("48 heads: no power of two", 0.2, 1e-3, 8192, 12_288, 48, 72, 480e9, 160e9, 0.8)
    yield case("a GPU that is best alone", 2e-3, 1.5e-3, 4096, 1024, 16, 8, 60e9, 10e9, 0.9)
    yield case("a quarter useful, wires without end", 0.05, 4e-3, 4096, 4096, 32, 8, 1e15, 1e15, 0.25)
    yield case("an eighth of it whole, wires without end", 0.06, 8e-3, 4096, 4096, 32, 8, 1e15, 1e15, 0.5)
    yield case("a network that is fast enough for many", 0.5, 0.0, 4096, 8192, 64, 2, 480e9, 70e9, 0.5)
    yield case("one that is useful by just a half", 7.0, 0.0, 1024, 1024, 16, 8, 2.0**24, 2.0**24, 0.5)
    fast = "a network faster than the wires inside: 4 are not useful, and 8 are"
    yield case(fast, 0.2, 0.0, 16_384, 8192, 64, 4, 30e9, 480e9, 0.5)


@exercise(
    title="How many GPUs for a layer?",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, FORMULAS),
        Values("the largest useful number, of layers and clusters of several kinds"),
    ],
    mistakes=[
        mistake(
            "What every rank does whole does not shrink: only the rest is divided by t",
            "(seconds - whole) / t + whole",
            "seconds / t",
        ),
        mistake(
            "What every rank does whole is a part of the time of one GPU: divide the rest, without it",
            "(seconds - whole) / t",
            "seconds / t",
        ),
        mistake(
            "Beyond a node the ring goes through the network, and is as fast as that",
            FASTEST,
            "nvlink",
        ),
        mistake(
            "A head is not cut: t divides the number of heads",
            "if heads % t == 0]",
            "if t <= heads]",
        ),
        mistake(
            "It is as if half of the bytes were sent: there are four all-reduces, two forward and two backward, each "
            "sends 2 b s h (t - 1)/t numbers, and a number has 2 bytes",
            SENT,
            SENT.replace("16", "8"),
        ),
        mistake(
            "Of each all-reduce a rank sends (t - 1)/t of twice the tensor: on few GPUs that is much less than all",
            SENT,
            SENT.removesuffix(" * (t - 1) / t"),
        ),
        mistake(
            "Half is one bound among others: compare with what is asked for",
            ">= least",
            ">= 0.5",
        ),
        mistake(
            "The GPUs are useful by T(1)/(t T(t)): t of them cost t times as much as one",
            "seconds / (t * layer)",
            "1 - layer / seconds",
        ),
    ],
    hints=[
        "Write T(t): a part that shrinks with 1/t, a part that does not, and the all-reduces.",
        "Four all-reduces of tokens x width numbers in 16 bits send 8 tokens width (t - 1)/t numbers from each rank. "
        "The bus bandwidth is that of the slowest wire of the ring.",
        "Try all t that divide the heads, and keep the largest that is useful enough.",
    ],
    why="With one kind of wire this can be solved for t, as in the notebook. Real clusters have two, so the answer is "
    "mostly the number of GPUs that NVLink joins, or less if the layer is narrow.",
)
def most_gpus(seconds, whole, tokens, width, heads, per_node, nvlink, network, least):
    """The largest number t of GPUs that may share a layer by tensor parallelism, all of them useful by at least
    ``least``: T(1)/(t T(t)) >= ``least``.

    On one GPU a layer takes ``seconds``, forward and backward, of which ``whole`` are spent on what every rank would do
    whole. Activations are ``tokens`` x ``width`` numbers in 16 bits. Nothing overlaps, and latencies are left out: an
    all-reduce takes the bytes that a ring of t ranks sends from each, over the bus bandwidth, which is ``nvlink``
    bytes/s as long as t <= ``per_node``, and ``network`` beyond. t divides ``heads``. A GPU alone is useful.
    """
    # ? How long does the layer take on t GPUs? For which t is it useful enough?
    most = 1
    for t in [t for t in range(1, heads + 1) if heads % t == 0]:
        bandwidth = nvlink if t <= per_node else network
        sent = 16 * tokens * width / bandwidth * (t - 1) / t
        layer = (seconds - whole) / t + whole + sent
        if seconds / (t * layer) >= least:
            most = t
    return most
