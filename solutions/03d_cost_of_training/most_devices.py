"""How many devices can share a batch? The hardware's critical number of tokens, and the learning's critical batch."""

import math

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, SOLVED


def case(about, *arguments):
    return alone(lambda: arguments, about)


def test_cases():
    #                batch, width, rate, latency, bandwidth, limit
    yield case("H100s on NVLink", 4_000_000, 8192, 728e12, 5e-6, 367e9, 4096)
    yield case("H100s on InfiniBand, where latency wins", 4_000_000, 8192, 728e12, 14e-6, 50e9, 4096)
    yield case("a small batch", 60_000, 8192, 728e12, 14e-6, 50e9, 4096)
    yield case("the same with four times the batch", 16_000_000, 8192, 728e12, 14e-6, 50e9, 4096)
    yield case("a batch that one device does best alone", 2000, 4096, 728e12, 14e-6, 25e9, 64)
    yield case("a network without latency", 1_000_000, 4096, 250e12, 0.0, 25e9, 4096)
    yield case("shares that are no whole numbers", 100, 64, 100e9, 0.0, 25e9, 64)
    yield case("as many devices as there are", 4_000_000, 8192, 250e12, 5e-6, 300e9, 16)


def ways():
    """What somebody may take otherwise."""
    return {
        "The ring has 2 (p-1) steps, and not 2 p": of(steps=lambda p: 2 * p),
        "The ring has 2 (p-1) steps, and not 2 p, each with a latency": of(often=lambda p: 2 * p),
        "The ring has 2 (p-1) steps: a sum goes round, and then comes back": of(steps=lambda p: p - 1),
        "In each step of the ring a device sends n/p bytes, and not all n": of(part=lambda p: 1),
        "Each of the 2 (p-1) steps of the ring pays the latency": of(often=lambda p: 1),
        "Each of the 2 (p-1) steps of the ring pays the latency: it is paid twice in all here": of(often=lambda p: 2),
        "Each of the 2 (p-1) steps of the ring pays the latency: half of them do here": of(often=lambda p: p - 1),
        "A ring has 2 (p-1) steps, and a tree 2 lg p: each of them pays the latency": of(
            often=lambda p: 2 * math.ceil(math.log2(p))
        ),
        "In each step of the ring a device sends n/p bytes: these are n/(p-1)": of(part=lambda p: p - 1),
        "A share is an average, and is not rounded down": of(share=lambda batch, p: batch // p),
        "There is one all-reduce, and one backward pass of a layer to hide it": of(steps=lambda p: 4 * (p - 1)),
        "It hides, too, if both take equally long": of(strict=True),
        "Backward takes 4 FLOPs for each parameter and token": of(flops=8),
    }


def of(steps=lambda p: 2 * (p - 1), part=lambda p: p, often=None, strict=False, flops=4, share=None):
    def way(batch, width, rate, latency, bandwidth, limit):
        most = 1
        for p in range(2, limit + 1):
            seconds = steps(p) * (latency * (often(p) / steps(p) if often else 1) + 4 * width**2 / part(p) / bandwidth)
            critical = seconds * rate / (flops * width**2)
            tokens = share(batch, p) if share else batch / p
            if tokens > critical or (tokens == critical and not strict):
                most = p
        return most

    return way


@exercise(
    title="The most devices",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, SOLVED),
        Values("the largest number of devices, on networks with and without latency", ways=ways()),
    ],
    mistakes=[
        mistake(
            "The backward pass takes 4 FLOPs for each token and parameter: two products",
            "(4 * width**2)",
            "(2 * width**2)",
        ),
        mistake(
            "It has to hide behind the backward pass alone: the forward pass is over by then",
            "(4 * width**2)",
            "(6 * width**2)",
        ),
        mistake(
            "A gradient in fp32 has 4 bytes for each of its numbers", "nbytes = 4 * width**2", "nbytes = 2 * width**2"
        ),
        mistake(
            "Each of the 2 (p-1) steps of the ring has its latency, so the critical number grows with the devices",
            "latency + nbytes / devices / bandwidth",
            "nbytes / devices / bandwidth",
        ),
        mistake(
            "The batch is shared: each device has batch / devices tokens",
            "batch / devices >= critical",
            "batch >= critical",
        ),
        mistake(
            "Do not round a device's share up: it is batch / devices tokens on average",
            "batch / devices >= critical",
            "-(-batch // devices) >= critical",
        ),
        mistake(
            "p may be `limit` itself: try it, too",
            "range(2, limit + 1)",
            "range(2, limit)",
        ),
        mistake(
            "A device that works alone sends nothing, so 1 is always an answer",
            "most = 1",
            "most = 0",
        ),
    ],
    hints=[
        "Write the condition for p devices: does a backward pass of batch / p tokens take at least as long as the "
        "ring?",
        "The ring takes 2 (p-1) (alpha + n / (p beta)) seconds with n = 4 w^2 bytes, and the backward pass of a layer "
        "4 (batch / p) w^2 / rate.",
        "From p = 1 on, try them all, and keep the largest p for which it holds.",
    ],
    why="With latency, twice the batch does not feed twice the devices: the critical number grows along the way. Here "
    "rings end and trees begin (chapter 03b), and a large run takes other kinds of parallelism.",
)
def most_devices(batch, width, rate, latency, bandwidth, limit):
    """How many devices can share a batch, if no device may wait for its gradients?

    Learning takes no more than ``batch`` tokens per step, and p devices share them, 1 <= p <= ``limit``. (A share is
    an average, and need not be a whole number.) Each layer
    has one weight of width x width numbers, whose gradient in fp32 is summed in a ring of all p devices, over
    links of ``latency`` and ``bandwidth``. As in section 5 of the notebook, the all-reduce of a layer has to hide
    behind the backward pass of another layer, at ``rate`` FLOP/s. It does so, too, if both take equally long. Return
    the largest p for which it hides. A device alone sends nothing.
    """
    nbytes = 4 * width**2
    # ? For which numbers of devices does the all-reduce hide?
    most = 1
    for devices in range(2, limit + 1):
        seconds = 2 * (devices - 1) * (latency + nbytes / devices / bandwidth)
        critical = seconds * rate / (4 * width**2)
        if batch / devices >= critical:
            most = devices
    return most
