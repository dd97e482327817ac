"""What stage 3 holds of weights at its peak, and what it sends, predicted."""

from math import isfinite

from tinydist.lab.author import Own, Varied, Wrong, alone, exercise, mistake

from .chapter import SOLVED

NAMES = ("rest", "in turns", "prefetch", "kept", "sent", "sent if kept")
PLANS = [  # numbers of the layers' weights, ranks, bytes of a number in a reduce-scatter
    ((1600, 1600, 1600, 1600), 4, 2),
    ((4000, 1000, 1000, 3000), 4, 2),  # the two largest are not neighbours
    ((900, 7200, 1800), 8, 4),
    ((100, 210, 90, 50), 3, 4),  # 100, 50: padding
    ((97, 1001, 350, 64, 13), 5, 2),
    ((500,), 2, 4),
]
PAIRS = "max(sum(wholes[i : i + 2]) for i in range(len(wholes)))"
ROUNDED = "parts = [-(-numbers // ranks) for numbers in layers]  # each is padded"


def test_cases():
    for layers, ranks, reduce_bytes in PLANS:
        about = f"layers={list(layers)}, ranks={ranks}, reduce_bytes={reduce_bytes}"
        yield alone(lambda given=(list(layers), ranks, reduce_bytes): given, about)


def named(answer, *given):
    found = answer(*given)
    if not isinstance(found, dict) or set(found) != set(NAMES):
        raise Wrong(f"it returned {found!r}, where a dict with {', '.join(map(repr, NAMES))} is right")
    if not all(type(each) in (int, float) and isfinite(each) for each in found.values()):
        raise Wrong(f"it returned {found!r}, but bytes are plain numbers")
    return {f"{name!r}": float(found[name]) for name in NAMES}


IN_TURNS, KEPT = "rest + max(wholes)", "rest + sum(wholes)"
PREFETCH = f"rest + {PAIRS}"
WHOLES, SENT = "[2 * ranks * part for part in parts]", "2 * gathered + reduced"
GATHERED_ONCE = "gathered + reduced,\n    }"


@exercise(
    title="Predict what FSDP holds and sends",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=named,
    targets=[
        Own("it predicts, and runs nothing", "predict it", SOLVED | {"tinydist.launching": "tinydist.launch"}),
        Varied(
            "bytes of weights at rest and at the peak, in three ways; bytes that a rank sends in a step, in two; as "
            "measured on 2, 3, 4, 5 and 8 ranks, with layers of unlike sizes, and padding",
            tell=False,
            variants=[
                (
                    "While a layer is whole its shard is there as well: the whole one is a tensor of its own",
                    IN_TURNS,
                    "rest + max(wholes) - 2 * max(parts)",
                    PREFETCH,
                    "rest + max(sum(wholes[i : i + 2]) - 2 * sum(parts[i : i + 2]) for i in range(len(wholes)))",
                    KEPT,
                    "sum(wholes)",
                ),
                (
                    "While a layer is whole its shard is there as well: the whole one is a tensor of its own",
                    IN_TURNS,
                    "rest + max(wholes) - 2 * max(parts)",
                    PREFETCH,
                    "rest + max(sum(wholes[i : i + 2]) - 2 * sum(parts[i : i + 2]) for i in range(len(wholes)))",
                ),
                (
                    "While a layer is whole its shard is there as well: the whole one is a tensor of its own",
                    IN_TURNS,
                    "rest + max(wholes) - 2 * max(parts)",
                ),
                ("While all layers are whole their shards are there as well", KEPT, "sum(wholes)"),
                (
                    "A whole layer has its padding, too: it is as long as all its parts",
                    WHOLES,
                    "[2 * numbers for numbers in layers]",
                ),
                (
                    "A layer at rest has its padding, too: all parts are equal",
                    "rest = 2 * sum(parts)",
                    "rest = 2 * sum(layers) / ranks",
                ),
                (
                    "Each layer is gathered twice in turns, the last one, too: forward and backward each gather it "
                    "anew",
                    SENT,
                    "2 * gathered - 2 * (ranks - 1) * parts[-1] + reduced",
                ),
                (
                    "A rank does not send its own part to itself in an all-gather: p - 1 parts",
                    "gathered = once * 2",
                    "gathered = once * 2 * ranks / max(1, ranks - 1)",
                ),
                (
                    "A rank does not send its own part to itself in a reduce-scatter: p - 1 parts",
                    "reduced = once * reduce_bytes",
                    "reduced = once * reduce_bytes * ranks / max(1, ranks - 1)",
                ),
                ("A collective sends p - 1 parts, and not one", "once = (ranks - 1) * sum(parts)", "once = sum(parts)"),
                (
                    "A reduce-scatter sends p - 1 parts: an all-reduce would send twice as many",
                    "reduced = once * reduce_bytes",
                    "reduced = 2 * once * reduce_bytes",
                ),
                ("Gradients are not sent: a step has a reduce-scatter", "reduced = once * reduce_bytes", "reduced = 0"),
                (
                    "Weights are gathered in 16 bits, 2 bytes a number, whatever reduce_bytes is",
                    "gathered = once * 2",
                    "gathered = once * reduce_bytes",
                ),
                ("Weights have 16 bits: 2 bytes a number", "rest = 2 *", "rest = 4 *", "[2 * ranks", "[4 * ranks"),
                (
                    "Weights that are kept until backward are gathered once",
                    GATHERED_ONCE,
                    "2 * gathered + reduced,\n    }",
                ),
                (
                    "With prefetch two layers are whole, the one that computes and the next, and not three",
                    PREFETCH,
                    PREFETCH.replace("i + 2", "i + 3"),
                ),
                ("In turns one layer is whole: the largest, and not the first", IN_TURNS, "rest + wholes[0]"),
                (
                    "This is rest in bytes of all ranks: a rank holds its parts",
                    "rest = 2 * sum(parts)",
                    "rest = 2 * ranks * sum(parts)",
                ),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "The shards are missing at the peak. They are tensors of their own, and stay while a layer is whole",
            "rest + max(wholes)",
            "max(wholes)",
        ),
        mistake(
            "With prefetch the two layers that are whole together are neighbours: the two largest need not be",
            PAIRS,
            "sum(sorted(wholes)[-2:])",
        ),
        mistake(
            "With prefetch the next layer is whole as well, or on its way into its whole buffer",
            f"rest + {PAIRS}",
            "rest + max(wholes)",
        ),
        mistake(
            "Where weights are kept until backward, all of them are whole when forward ends",
            '"kept": rest + sum(wholes)',
            '"kept": rest + max(wholes)',
        ),
        mistake(
            "A rank's part of a layer is a whole number, the same on all ranks: numbers / ranks, rounded up. What is "
            "padded is held and sent like the rest",
            ROUNDED,
            "parts = [numbers / ranks for numbers in layers]",
        ),
        mistake(
            "It is not sent in the weights' dtype: a number takes reduce_bytes in a reduce-scatter",
            "reduced = once * reduce_bytes",
            "reduced = once * 2",
        ),
        mistake(
            "Weights that were freed after forward are gathered a second time before backward: two all-gathers and a "
            "reduce-scatter",
            "2 * gathered + reduced",
            "gathered + reduced",
        ),
        mistake(
            "A rank does not send its own part to itself: p - 1 parts in a collective",
            "once = (ranks - 1) * sum(parts)",
            "once = ranks * sum(parts)",
        ),
    ],
    hints=[
        "Take one layer first. A rank's part has numbers / ranks numbers, rounded up; whole, it is `ranks` parts. The "
        "weights have 2 bytes a number. All parts of all layers are always there.",
        "At which moments is which layer whole? In turns: one. With prefetch: the one that computes, and the next one, "
        "in forward from the first to the last, in backward from the last to the first.",
        "A collective over a layer sends ranks - 1 parts, of 2 bytes a number (all-gather) or of reduce_bytes "
        "(reduce-scatter). How many of each are in a step?",
    ],
    why="This is the sum that decides whether a model fits, and it has no number of ranks in its largest term: what is "
    "whole at one moment. So wrapping smaller units lowers the peak, and one unit around everything is no FSDP at all.",
)
def predicted_fsdp(layers, ranks, reduce_bytes):
    """Predict, for stage 3 with a unit for each layer, what a rank holds of weights and what it sends in a step.

    ``layers``: how many numbers each layer's weight has, in forward's order; in 16 bits. Each is cut in a row into
    ``ranks`` parts, padded so that all are equal, and whole it has its padding, too. Gradients travel with
    ``reduce_bytes`` bytes a number. Return a dict of bytes: weights at "rest"; at the peak, shards included, "in turns"
    (a layer is gathered when it is needed, and freed after its pass), with "prefetch" (while a layer computes, the next
    one is gathered, in forward and in backward), and "kept" (until backward, as ``reshard_after_forward=False``);
    "sent" by a rank in a step in the first two ways, and "sent if kept".
    """
    parts = [-(-numbers // ranks) for numbers in layers]  # each is padded
    # ? Bytes that are there at rest, and of each layer when it is whole. Which are whole at the same time?
    rest = 2 * sum(parts)
    wholes = [2 * ranks * part for part in parts]
    # ? Bytes of one all-gather and of one reduce-scatter over all layers. How many of each are in a step?
    once = (ranks - 1) * sum(parts)
    gathered = once * 2
    reduced = once * reduce_bytes
    return {
        "rest": rest,
        "in turns": rest + max(wholes),
        "prefetch": rest + max(sum(wholes[i : i + 2]) for i in range(len(wholes))),
        "kept": rest + sum(wholes),
        "sent": 2 * gathered + reduced,
        "sent if kept": gathered + reduced,
    }
