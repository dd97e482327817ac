"""Interleaved 1F1B: a microbatch comes by each rank v times, so the pipeline is filled in 1/v of the time."""

from tinydist.lab.author import exercise, mistake
from tinydist.pipeline_parallel import Costs

from .schedules import OWN, Held, Makespan, Verified, asked, setting

SIZES = [(2, 4, 2), (3, 6, 2), (2, 4, 3), (4, 8, 2), (2, 6, 2), (2, 2, 2), (3, 3, 2), (1, 2, 2)]  # ranks, M, chunks


def test_cases():
    for ranks, microbatches, chunks in SIZES:
        yield setting(ranks, microbatches, chunks=chunks)


WARM_UP = "warm_up = min((chunks - 1) * ranks + 2 * (ranks - 1 - rank), len(forwards))"
GROUPS = "groups = [range(first, first + ranks) for first in range(0, microbatches, ranks)]"


@exercise(
    title="The warm-up of interleaved 1F1B",
    minutes=25,
    difficulty=4,
    test_cases=test_cases,
    program=asked(),
    targets=[
        OWN,
        Verified(f"every rule of the verifier, for (P, M, v) = {', '.join(map(str, SIZES))}"),
        Makespan(
            "bubble",
            "(P-1)(F+B)/v of idle time a rank: 1/v of 1F1B's",
            Costs(1, 1, 1),
            advice=": a rank is idle for (P-1)(F+B)/v",
        ),
        Makespan(
            "hidden",
            "with messages of 0.25 s, only 2 (v P - 1) of them cost time, whatever M is",
            Costs(1, 1, 1, message=0.25),
            advice=": the messages of one way down and back cost time, and all others can travel while a rank does "
            "another pass",
        ),
        Held("at most one activation more than there are forwards in the warm-up; P v + P - 1 on the first rank"),
    ],
    mistakes=[
        mistake(
            "The warm-up is that of 1F1B with one stage a rank: here a microbatch comes by v times",
            WARM_UP,
            "warm_up = min(ranks - 1 - rank, len(forwards))",
        ),
        mistake(
            "The warm-up is too short: microbatch 0 must pass all v stages of a rank before its first backward",
            WARM_UP,
            "warm_up = min(2 * (ranks - 1 - rank), len(forwards))",
        ),
        mistake(
            "There is no warm-up: microbatch 0 must pass all v stages of a rank before its first backward",
            WARM_UP,
            "warm_up = 0",
        ),
        mistake(
            "The warm-up counts what is on its way down to the last rank, and not what is on its way back. So a rank "
            "has nothing to do while a message travels",
            WARM_UP,
            "warm_up = min((chunks - 1) * ranks + ranks - 1 - rank, len(forwards))",
        ),
        mistake(
            "All v M forwards come before the first backward, which could begin sooner",
            WARM_UP,
            "warm_up = len(forwards)",
        ),
        mistake(
            "Each microbatch goes through all stages of the rank before the next. Stages take turns, each with a group "
            "of P microbatches",
            GROUPS,
            "groups = [[each] for each in range(microbatches)]",
        ),
        mistake(
            "Each stage takes all microbatches before the next. Stages take turns, each with a group of P microbatches",
            GROUPS,
            "groups = [range(microbatches)]",
        ),
        mistake(
            "The backwards begin with the rank's first stage: backward comes from the other end",
            "stages[::-1]",
            "stages",
        ),
    ],
    hints=[
        "Go round the loop with the first microbatches: rank 0 does P of them on its first stage. By then microbatch 0 "
        "has come back from the last rank: so it does the same P on its second stage, and so on.",
        "Forwards: for each group of P microbatches, for each of the rank's stages, for each microbatch of the group. "
        "Backwards: the same with the stages from the last to the first.",
        "The last rank can begin with backward when it has done P microbatches of each of its stages but the last: "
        "(v-1) P forwards ahead, and one more that is paired with the backward.",
        "A rank that is k further from the last has k more on their way down and k on their way back, so that there is "
        "a pass to do while messages travel; but a warm-up never has more than all v M forwards.",
    ],
    why="Megatron-LM calls v the virtual pipeline stages; with 4 of them the bubble is a quarter. It pays with v times "
    "as many messages and a few more activations, so it is for fast links.",
)
def interleaved(rank, ranks, microbatches, chunks):
    """Write interleaved 1F1B: each rank has ``chunks`` stages; rank r has r, r + ranks, r + 2 ranks, ...

    ``ranks`` divides ``microbatches``. What you find: the order in which the stages of a rank take turns, and how many
    forwards are ahead of the first backward.
    """
    stages = range(rank, chunks * ranks, ranks)
    # All forwards of this rank in their order, f"{stage}F{microbatch}"; all backwards in theirs.
    # -
    groups = [range(first, first + ranks) for first in range(0, microbatches, ranks)]
    # .
    forwards = [f"{stage}F{each}" for group in groups for stage in stages for each in group]  # = forwards = []
    backwards = [f"{stage}B{each}" for group in groups for stage in stages[::-1] for each in group]  # = backwards = []
    # How many forwards, before forward and backward take turns?
    # -
    # The last rank needs all of its stages but the last; each rank above, 2 more: one for the way down, one for back.
    # .
    warm_up = min((chunks - 1) * ranks + 2 * (ranks - 1 - rank), len(forwards))  # = warm_up = 0
    # ?
    # .
    yield from forwards[:warm_up]
    for forward, backward in zip(forwards[warm_up:], backwards):
        yield from (forward, backward)
    yield from backwards[len(forwards) - warm_up :]
