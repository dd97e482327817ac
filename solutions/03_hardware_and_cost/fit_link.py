"""A fit of a link to two measured ring all-reduces, with three bugs: the numbers that it gives are plausible."""

from math import isclose

from tinydist.hardware import published
from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, SOLVED

KIB, MIB, GIB = 2**10, 2**20, 2**30


def case(about, ranks, small, small_seconds, large, large_seconds):
    return alone(lambda: (ranks, small, small_seconds, large, large_seconds), about)


def of_link(about, ranks, small, large, latency, bandwidth):
    times = [2 * (ranks - 1) * (latency + nbytes / (ranks * bandwidth)) for nbytes in (small, large)]
    return case(f"{about}, {ranks} ranks", ranks, small, times[0], large, times[1])


def measured(name, small, large):
    bus = published.ALL_REDUCES[name]
    times = [2 * 7 / 8 * nbytes / bus[nbytes] for nbytes in (small, large)]
    about = f"as measured on {name}, {small // KIB:,} KiB and {large // MIB:,} MiB"
    return case(about, 8, small, times[0], large, times[1])


def test_cases():
    yield of_link("sizes that lie near to each other", 16, MIB, 3 * MIB, 14e-6, 25e9)
    yield of_link("NVLink of A100s", 8, KIB, GIB, 3.4e-6, 300e9)
    yield of_link("a link of 5 us and 1 GB/s", 2, KIB, GIB, 5e-6, 1e9)
    yield of_link("a link of half a microsecond", 3, MIB, GIB, 0.5e-6, 50e9)
    yield measured("8 x A100", 32 * KIB, 16 * GIB)
    yield measured("8 x A100", 64 * MIB, 128 * MIB)
    yield measured("8 x H200", 32 * KIB, 16 * GIB)
    yield measured("8 x A100", 8 * MIB, 16 * MIB)  # twice the bytes took more than twice as long: alpha is below 0


class Link(Values):
    def general(self, trial, right):
        (alpha, beta, _), (right_alpha, right_beta, _) = trial.returned[0], right.returned[0]
        ranks, small, small_seconds, *_ = trial.case.arguments(0)
        step = small_seconds / (2 * (ranks - 1))
        if close(alpha, right_alpha) and close(beta, ranks * right_beta):
            return "In a step a rank sends n/p bytes, not all n: beta is what these take"
        if close(beta, right_beta) and close(alpha, step - small / beta):
            return "You subtract the time of all n bytes from that of a step, in which a rank sends n/p"
        return super().general(trial, right)


def close(a, b):
    return isclose(a, b, rel_tol=1e-6)


@exercise(
    title="Find three bugs in a fit",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, SOLVED),
        Link(
            "alpha, beta, and the bytes from which on bandwidth decides, on 2 to 16 ranks",
            names=("alpha", "beta", "the bytes of half"),
        ),
    ],
    mistakes=[
        mistake(
            "beta is bytes per second here, not seconds per byte",
            "return latency, bandwidth,",
            "return latency, 1 / bandwidth,",
        ),
        mistake(
            "In each of the 2 (p-1) steps a rank sends n/p bytes, not all n",
            "bandwidth = steps * (large - small) / ranks",
            "bandwidth = steps * (large - small)",
            given=True,
        ),
        mistake(
            "Two ways around the ring: there are 2 (p-1) steps, not p-1",
            "steps = 2 * (ranks - 1)",
            "steps = ranks - 1",
            given=True,
        ),
        mistake(
            "A ring all-reduce is no single message: it has 2 (p-1) steps, and each of them pays the latency",
            "steps = 2 * (ranks - 1)",
            "steps = 1",
        ),
        mistake(
            "The small all-reduce has bytes as well: its time is not latency alone",
            "small_seconds / steps - small / (ranks * bandwidth)",
            "small_seconds / steps",
            given=True,
        ),
        mistake(
            "The large all-reduce has latency as well: beta follows from the difference of both",
            "(large - small) / ranks / (large_seconds - small_seconds)",
            "large / ranks / large_seconds",
        ),
        mistake(
            "Twice the bytes took more than twice as long, so the line has an alpha below 0. No link is like this, and "
            "whoever cuts it off at 0 does not see it",
            "small_seconds / steps - small / (ranks * bandwidth)",
            "max(0.0, small_seconds / steps - small / (ranks * bandwidth))",
        ),
        mistake(
            "Each message has n/p bytes: the tensor has `ranks` times as many",
            "ranks * latency * bandwidth",
            "latency * bandwidth",
        ),
    ],
    hints=[
        "Take a link that you know, of 3.4 us and 300 GB/s, and compute the two times by hand with the formula of "
        "section 3. What does the program make of them? Which factors are 2, and which are the number of ranks?",
        "How many steps does a ring all-reduce have, and how many bytes does a rank send in each of them?",
        "The third bug is small where the small tensor has a few bytes, and large where it has millions: all-reduces "
        "of any size have both alpha and beta in them. Once beta is known, how long did the small one's bytes take?",
    ],
    why="None of these bugs stops a program, and each of its numbers looks like a link: a fit has to be tried on times "
    "whose link is known. And each pair of measurements gives another link, since NCCL changes its algorithm and its "
    "protocol with the size, as chapter 03b shows: a line through two points says little outside of them.",
)
def fit_link(ranks, small, small_seconds, large, large_seconds):
    """Mend this fit of a link to two measured ring all-reduces. It has three bugs.

    On the times of eight ranks that a link of 3.4 us and 300 GB/s would give (for 1,000 bytes and for 1 GB), it says
    6.8 us and 1,200 GB/s. A tensor of ``small`` bytes took ``small_seconds`` on ``ranks`` ranks, and one of ``large``
    bytes ``large_seconds``; both went around the ring as in section 3 of the notebook. It should return three numbers:
    alpha in seconds, beta in bytes per second, and the bytes of the tensor for which half of the time is latency. (The
    last line has no bug of its own.)
    """
    steps = 2 * (ranks - 1)
    bandwidth = steps * (large - small) / ranks / (large_seconds - small_seconds)
    latency = small_seconds / steps - small / (ranks * bandwidth)
    return latency, bandwidth, ranks * latency * bandwidth
