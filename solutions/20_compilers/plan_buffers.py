"""Offsets for buffers that come one after another: best fit."""

from random import Random

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED


def case(about, buffers, alignment=1):
    return alone(lambda: (list(buffers), alignment), about)


def drawn(seed, alignment):
    random = Random(seed)
    buffers = [(random.randint(1, 200), first, min(16, first + random.randrange(6))) for first in range(12)]
    return case(f"12 buffers, multiples of {alignment}, drawn with seed {seed}", buffers, alignment)


def test_cases():
    yield case("one buffer", [(100, 0, 3)])
    yield case("two that are alive together", [(100, 0, 3), (60, 1, 2)])
    yield case("the second begins when the first is read last", [(100, 0, 2), (60, 2, 4)])
    yield case("the second begins behind the first's last step", [(100, 0, 1), (60, 2, 4)])
    gaps = [(50, 0, 1), (10, 0, 9), (40, 0, 1), (10, 0, 9), (30, 2, 4)]
    yield case("two gaps, the second fits best", gaps)
    yield case("two gaps of the same size", [(30, 0, 1), (10, 0, 9), (30, 0, 1), (10, 0, 9), (30, 2, 4)])
    yield case("bytes that are no multiple of the alignment", [(100, 0, 3), (60, 1, 2)], 64)
    for seed in range(6):
        yield drawn(seed, 16)


@exercise(
    title="Plan buffers in the order in which they come",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own plan", INSTEAD, SOLVED),
        Values("the offset of each buffer, and the arena; 1 to 12 buffers", names=("the offsets", "the arena")),
    ],
    mistakes=[
        mistake(
            "A buffer that ends at a step is still read there: its bytes are free from the next step on",
            "last >= first",
            "last > first",
        ),
        mistake("Each buffer takes a multiple of the alignment", "-(-nbytes // alignment) * alignment", "nbytes"),
        mistake("Of all gaps that fit, take the smallest", "(begin - end, end)", "(0, end)"),
        mistake(
            "Of gaps of the same size, take the lowest", "min(gaps)", "min(gaps, key=lambda gap: (gap[0], -gap[1]))"
        ),
        mistake(
            "A gap that is just as large as the buffer fits",
            "begin - end >= size",
            "begin - end > size",
        ),
        mistake("Lifetimes count: what is not alive any more leaves its place", "if last >= first", "if True"),
        mistake("The arena is as large as it ever gets", "arena = max(arena, offset + size)", "arena = offset + size"),
    ],
    hints=[
        "When a buffer comes, which of those before it are still alive? Sort them by offset.",
        "Walk over them from 0 on: a gap lies between the end of what you have passed and the next one.",
        "If no gap fits, the buffer goes behind all that are alive.",
    ],
    why="A planner that sees the whole graph places the largest first, and gets nearer to the bound. An allocator at "
    "run time cannot: it has to place what comes, and knows nothing of what will be freed when.",
)
def plan_buffers(buffers, alignment):
    """Return (offsets, arena): where each buffer begins, and the bytes of all.

    A buffer is (nbytes, first, last): it is made in step ``first`` and read in step ``last`` for the last time; they
    come in the order of ``first``. It takes nbytes, rounded up to a multiple of ``alignment``. Place one after another,
    knowing nothing of those to come: in the smallest gap in which it fits between those that are alive (or before the
    first of them), the lowest of equal ones; else behind the last that is alive.
    """
    offsets, arena, placed = [], 0, []
    for nbytes, first, its_last in buffers:
        # ? How much does it take, and what is in the way?
        size = -(-nbytes // alignment) * alignment
        alive = sorted((begin, until) for begin, until, last in placed if last >= first)
        # ? Which gaps fit?
        gaps, end = [], 0
        for begin, until in alive:
            if begin - end >= size:
                gaps.append((begin - end, end))
            end = max(end, until)
        offset = min(gaps)[1] if gaps else end
        # ? What is known now?
        placed.append((offset, offset + size, its_last))
        offsets.append(offset)
        arena = max(arena, offset + size)
    return offsets, arena
