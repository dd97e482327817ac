"""A benchmark's table read: bus bandwidth, where half of it is reached, and whether something added on the way."""

from tinydist.hardware.published_collectives import ALL_REDUCES, HALVES, seconds_of
from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import ARITHMETIC, FORMULAS

GB, MIB = 1e9, 2**20
# In a node a rank's link; over nodes all cards of a node, which rings share
WIRES = {"8 x A100": 300 * GB, "8 x H200": 450 * GB, "8 x B200": 900 * GB, "4 x 8 B200": 8 * 50 * GB}
NODE = {"2 MiB": 2 * MIB, "32 MiB": 32 * MIB, "128 MiB": 128 * MIB}


def case(about, collective, ranks, seconds, wire, **more):
    return alone(lambda: (collective, ranks, dict(seconds), wire), about, **more)


def of_machine(name):
    ranks = 32 if name.startswith("4") else 8
    about = f"all-reduces on {name}, published"
    return case(about, "all_reduce", ranks, seconds_of(ALL_REDUCES[name], ranks), WIRES[name])


def test_cases():
    for name in WIRES:
        yield of_machine(name)
    for collective in ("all_gather", "reduce_scatter"):
        yield case(f"{collective} on 8 H100s, published", collective, 8, HALVES[collective, None], 450 * GB)
    yield case("all_to_all on 16 ranks", "all_to_all", 16, {MIB: 60e-6, 8 * MIB: 200e-6, 64 * MIB: 1.4e-3}, 50 * GB)
    yield case("the best is not the largest", "all_reduce", 4, {MIB: 1e-4, 2 * MIB: 1.1e-4, 4 * MIB: 9e-4}, 100 * GB)
    yield case("the largest size first", "all_gather", 2, {4 * MIB: 1e-4, MIB: 6e-5, 2 * MIB: 7e-5}, 20 * GB)
    yield case("a size at exactly half of the best", "all_reduce", 2, {1000: 2e-6, 2000: 2e-6, 4000: 2e-6}, 3 * GB)
    yield case("the best is exactly the wire", "all_reduce", 2, {1000: 2e-6, 2000: 2e-6}, 1 * GB)
    yield case("one size", "reduce_scatter", 3, {300: 1e-6}, 1 * GB)


def ways():
    """What somebody may take otherwise."""
    reaches = "The size wanted is the smallest of those that reach half of the best or more"
    return {
        f"{reaches}: not the one before it": of(half=lambda s, b: max([n for n in s if s[n] < b / 2] or [min(s)])),
        f"{reaches}: not the one that comes nearest to half": of(
            half=lambda s, b: min(s, key=lambda n: abs(s[n] - b / 2))
        ),
        f"{reaches}: not the first of the table": of(half=lambda s, b: next(n for n in s if s[n] >= b / 2)),
        f"{reaches}: not the last of the table": of(half=lambda s, b: [n for n in s if s[n] >= b / 2][-1]),
        f"{reaches}: the bandwidth is to be half of the best, and not the size": of(
            half=lambda s, b: max(s, key=s.get) // 2
        ),
        f"{reaches}: not the size of the best": of(half=lambda s, b: max(s, key=s.get)),
        f"{reaches}, even if a larger one does not": of(
            half=lambda s, b: min([n for n in s if all(s[m] >= b / 2 for m in s if m >= n)] or [max(s)])
        ),
        "It is compared with wire, and not with half of it": of(wires=0.5),
        "Each rank sends (p-1)/p of the bytes, and twice that in an all-reduce: not p-1 times": of(
            factor=lambda p: p - 1
        ),
        "Each rank sends (p-1)/p of the bytes, and twice that in an all-reduce: not all": of(factor=lambda p: 1),
        "Each rank sends (p-1)/p of the bytes: not p/(p-1)": of(factor=lambda p: p / (p - 1)),
        "The best is the highest of all, and not their mean": of(best=lambda s: sum(s.values()) / len(s)),
    }


def of(
    best=lambda s: max(s.values()),
    half=lambda s, b: min(n for n in s if s[n] >= b / 2),
    wires=1,
    factor=lambda p: (p - 1) / p,
):
    def way(collective, ranks, seconds, wire):
        sent = factor(ranks) * (2 if collective == "all_reduce" else 1)
        speeds = {nbytes: sent * nbytes / each for nbytes, each in seconds.items()}
        found = best(speeds)
        return found, half(speeds, found), found > wires * wire

    return way


@exercise(
    title="Read a benchmark",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", ARITHMETIC, FORMULAS),
        Values(
            "the best bus bandwidth, where half of it is reached, and what passes the wire: of published all-reduces, "
            "all-gathers and reduce-scatters (the A100s of the notebook: 235 GB/s, 32 MiB, False), and of other tables",
            names=("the best bus bandwidth", "the size at which half is reached", "whether it is beyond the wire"),
            ways=ways(),
        ),
    ],
    mistakes=[
        mistake(
            "This is the algorithm bandwidth, bytes / time: it lacks the part that each rank has to send",
            "factor * nbytes / each",
            "nbytes / each",
        ),
        mistake(
            "2 (p-1)/p is the factor of an all-reduce. An all-gather, a reduce-scatter and an all-to-all send half "
            "of that",
            'if collective == "all_reduce":',
            "if True:",
        ),
        mistake(
            "An all-to-all sends (p-1)/p of the bytes, as an all-gather does. What comes in travels in the other "
            "direction, and is not counted once more",
            'if collective == "all_reduce":',
            'if collective in ("all_reduce", "all_to_all"):',
        ),
        mistake(
            "The best row need not be that of the largest tensor: take the highest of all",
            "best = max(speeds.values())",
            "best = speeds[max(speeds)]",
        ),
        mistake(
            "The size wanted is the smallest that reaches half of the best bandwidth",
            "half = min(",
            "half = max(",
        ),
        mistake(
            "A size that reaches exactly half of the best counts: half of it or more",
            "speed >= best / 2",
            "speed > best / 2",
        ),
        mistake(
            "A best that equals the wire is not beyond it: nothing has added on the way",
            "best > wire",
            "best >= wire",
        ),
        mistake(
            "It has to be compared with what the wire carries in one direction, as wire says, by bus bandwidth",
            "best > wire",
            "best > 2 * wire",
        ),
    ],
    hints=[
        "Bus bandwidth is bytes / seconds times the part of the bytes that each rank has to send. Which part, for "
        "which "
        "collective?",
        "2 (p-1)/p for an all-reduce, (p-1)/p for the others. Make a dict {bytes: bus bandwidth}, and take its "
        "largest value.",
        "Of the sizes whose bus bandwidth is at least half of the best, the smallest: min(...) over the dict.",
    ],
    why="Three numbers say what a machine is worth to you: its plateau, how large a bucket must be to come near it, "
    "and whether an all-reduce profits from switches that add. The weights that FSDP gathers get nothing from those.",
)
def read_benchmark(collective, ranks, seconds, wire):
    """Read a table of measurements: return (best, half, beyond).

    ``seconds`` is {bytes: seconds}, as nccl-tests counts bytes, of a ``collective`` ("all_reduce", "all_gather",
    "reduce_scatter" or "all_to_all") among so many ``ranks``. ``best`` is the highest bus bandwidth, in bytes/s;
    ``half`` is the smallest size of the table that reaches half of it or more; ``beyond`` is True if ``best`` is more
    than ``wire``, else False. ``wire`` is the bytes/s in one direction of what carries a ring: a rank's link in a node,
    and over nodes all cards of a node together.
    """
    # ? The bus bandwidth of each size
    factor = (ranks - 1) / ranks
    if collective == "all_reduce":
        factor *= 2
    speeds = {nbytes: factor * nbytes / each for nbytes, each in seconds.items()}
    # ? The best, where half of it is reached, and whether it passes the wire
    best = max(speeds.values())
    half = min(nbytes for nbytes, speed in speeds.items() if speed >= best / 2)
    return best, half, best > wire
