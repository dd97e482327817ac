"""1F1B: as soon as a backward can be done it is done, so that less is held. The bubble stays."""

from tinydist.lab.author import exercise, mistake
from tinydist.pipeline_parallel import Costs

from .schedules import OWN, Held, Makespan, Verified, asked, setting

SIZES = [(3, 5), (2, 4), (4, 2), (2, 7), (4, 8), (5, 5), (1, 3)]  # ranks, microbatches


def worlds():
    for size in SIZES:
        yield setting(*size)


WARM_UP = "warm_up = min(ranks - 1 - rank, microbatches)"


@exercise(
    title="1F1B under a memory bound",
    minutes=15,
    difficulty=2,
    worlds=worlds,
    program=asked(),
    targets=[
        OWN,
        Verified(f"every rule of the verifier, for (P, M) = {', '.join(map(str, SIZES))}"),
        Held(
            "rank r holds the activations of at most min(P - r, M) microbatches at once",
            "of min(P - rank, M) = {:g} at most",
        ),
        Makespan(
            "bubble",
            "the step takes no longer than GPipe's (M+P-1)(F+B), for B = 2F and for B = F",
            Costs(1, 1, 1),
            Costs(2, 1, 1),
            advice=": (M+P-1)(F+B), as GPipe",
        ),
    ],
    mistakes=[
        mistake("Every rank does all forwards first: that is GPipe", WARM_UP, "warm_up = microbatches"),
        mistake(
            "Every rank does the same number of forwards before its first backward. But the later a rank, the sooner "
            "the first microbatch is back from the last",
            WARM_UP,
            "warm_up = min(ranks - 1, microbatches)",
        ),
        mistake(
            "The warm-up has one forward too many: after it comes another forward, and then the first backward",
            WARM_UP,
            "warm_up = min(ranks - rank, microbatches)",
        ),
        mistake(
            "The warm-up has one forward too few: a rank waits for its first backward, where it could do another",
            WARM_UP,
            "warm_up = min(max(0, ranks - 2 - rank), microbatches)",
        ),
        mistake(
            "There is no warm-up: a rank waits for each backward, where it could do another forward",
            WARM_UP,
            "warm_up = 0",
        ),
        mistake(
            "As many backwards are still to come as there were forwards ahead of them: the cooldown",
            '    for microbatch in range(microbatches - warm_up, microbatches):\n        yield f"{rank}B{microbatch}"',
            "",
        ),
        mistake(
            "There may be fewer microbatches than ranks: the warm-up has never more than M forwards",
            WARM_UP,
            "warm_up = ranks - 1 - rank",
            "range(microbatches - warm_up, microbatches)",
            "range(max(0, microbatches - warm_up), microbatches)",
        ),
        mistake(
            "In each turn the forward comes first: the backward needs what it made",
            '        yield f"{rank}F{warm_up + microbatch}"\n        yield f"{rank}B{microbatch}"',
            '        yield f"{rank}B{microbatch}"\n        yield f"{rank}F{warm_up + microbatch}"',
        ),
        mistake(
            "As many forwards as fit are followed by as many backwards, and the pipeline is drained each time: after "
            "the warm-up, a forward and a backward take turns",
            WARM_UP,
            "most = min(ranks - rank, microbatches)\n"
            "    for first in range(0, microbatches, most):\n"
            '        for kind in "FB":\n'
            "            for each in range(first, min(first + most, microbatches)):\n"
            '                yield f"{rank}{kind}{each}"\n'
            "    return\n"
            "    warm_up = 0",
        ),
    ],
    hints=[
        "A microbatch is held from its forward to its backward. The last rank can do the backward right after the "
        "forward. How many more forwards can rank r do before its first backward can begin?",
        "Three parts: a warm-up of forwards alone; then a forward and a backward in turn; then the backwards that are "
        "left, as many as there were forwards in the warm-up.",
        "The warm-up of rank r has P - 1 - r forwards, but never more than M.",
        "With w forwards in the warm-up, forward w+i and backward i are a pair in the turns. Which backwards are left "
        "after M-w of them?",
    ],
    why="Most people expect a smaller bubble of 1F1B, and it has the same. What it changes is memory, P microbatches "
    "instead of M: so M can grow, and it is a larger M that makes the bubble small.",
)
def one_f_one_b(rank, ranks, microbatches):
    """Write 1F1B: yield what ``rank`` does, holding few microbatches, in no more time than GPipe.

    A rank holds a microbatch from its forward, f"{rank}F{microbatch}", to its backward, f"{rank}B{microbatch}": at most
    min(ranks - rank, microbatches) of them at once. There may be fewer microbatches than ranks.
    """
    # ? 1. The warm-up: how many forwards, before the first backward can begin?
    # ? 2. One forward, one backward, in turn.
    # ? 3. The backwards that are left.
    warm_up = min(ranks - 1 - rank, microbatches)
    for microbatch in range(warm_up):
        yield f"{rank}F{microbatch}"
    for microbatch in range(microbatches - warm_up):
        yield f"{rank}F{warm_up + microbatch}"
        yield f"{rank}B{microbatch}"
    for microbatch in range(microbatches - warm_up, microbatches):
        yield f"{rank}B{microbatch}"
