"""1F1B where messages take time: how far ahead must a rank be, so that nobody waits for a message but the first?"""

from math import ceil

from tinydist.lab.author import exercise, mistake
from tinydist.pipeline_parallel import Costs

from .schedules import OWN, Held, Makespan, Verified, asked, setting

# ranks, microbatches, seconds of a message
SIZES = [(3, 6, 0.0), (3, 9, 1.5), (4, 12, 0.5), (2, 8, 3.0), (4, 14, 2.0), (3, 2, 1.0), (1, 3, 1.0)]


def test_cases():
    for ranks, microbatches, message in SIZES:
        yield setting(ranks, microbatches, message=message)


class Shortest(Makespan):
    def costs_of(self, ranks, microbatches, message):
        return [Costs(1, 1, 1, message=message)]


STEP = "step = 1 + ceil(2 * message / 3)"
WARM_UP = "warm_up = min((ranks - 1 - rank) * step, microbatches)"


@exercise(
    title="1F1B, where messages take time",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    program=asked(),
    targets=[
        OWN,
        Verified(f"every rule of the verifier, for (P, M, message) = {', '.join(map(str, SIZES))}"),
        Held("a rank holds no more microbatches than that takes: on 4 ranks 7, 5, 3 and 1, with messages of 0.5 s"),
        Shortest(
            "time",
            "(P-1)(F+B+2 message) + M (F+B) seconds: the first one's way down and the last one's way up, and all work",
            advice=": (P-1)(F+B+2 message) + M (F+B)",
        ),
    ],
    mistakes=[
        mistake(
            "The two messages are rounded down to whole microbatches: for a part of one, one more has to be there",
            STEP,
            "step = 1 + int(2 * message / 3)",
        ),
        mistake(
            "This is 1F1B for messages that take no time: here a rank waits for each gradient while it is on its way, "
            "and could do another forward meanwhile",
            STEP,
            "step = 1",
        ),
        mistake(
            "The message down is counted, and not the one back up: in both, a microbatch is with no rank",
            STEP,
            "step = 1 + ceil(message / 3)",
        ),
        mistake(
            "Two messages are counted in all. There are two between each two neighbors, down to the last rank",
            WARM_UP,
            "warm_up = min((ranks - 1 - rank) + ceil(2 * message / 3) * (rank < ranks - 1), microbatches)",
        ),
        mistake("Every rank does all forwards first: that is GPipe", WARM_UP, "warm_up = microbatches"),
        mistake(
            "There is no warm-up: a rank waits for each backward, where it could do another forward",
            WARM_UP,
            "warm_up = 0",
        ),
        mistake(
            "There may be fewer microbatches than that: the warm-up has never more than M forwards",
            WARM_UP,
            "warm_up = (ranks - 1 - rank) * step",
            "range(microbatches - warm_up, microbatches)",
            "range(max(0, microbatches - warm_up), microbatches)",
        ),
        mistake(
            "In each turn the forward comes first, as it is what others wait for",
            '        yield f"{rank}F{warm_up + microbatch}"\n        yield f"{rank}B{microbatch}"',
            '        yield f"{rank}B{microbatch}"\n        yield f"{rank}F{warm_up + microbatch}"',
        ),
    ],
    hints=[
        "Only the warm-up is another than in the notebook. Why has rank r P - 1 - r forwards there? Because each rank "
        "that follows has one microbatch in work, when the first comes back.",
        "Look at two neighbors alone, the last rank and the one before. The last does a forward and a backward of a "
        "microbatch in a row. How long after it has sent an output is the gradient here? What has it to do meanwhile?",
        "From the end of its forward until its gradient is there, message + F + B + message go by. A rank works F + B "
        "for each microbatch. How many are begun in that time, if it never waits?",
        "Each rank that follows adds as many to the warm-up as the last one does: the one that it has in work, and so "
        "many as hide two messages, rounded up.",
    ],
    why="How many are under way is how long each is away, over how often one starts (Little's law). It gives P - r for "
    "1F1B, and 2 for each rank that follows where 2 messages take up to F + B: that is the 2 in the warm-up of "
    "interleaved 1F1B. So slow links cost memory, before they cost time.",
)
def one_f_one_b(rank, ranks, microbatches, message):
    """Write 1F1B for messages that take time, so that they cost none: a rank has something else to do meanwhile.

    A forward takes 1 s, a backward 2 s, and what a rank sends to the next one, or back, is there ``message`` seconds
    later. Only the first microbatch's way down and the last one's way up should take longer than without messages. A
    rank holds a microbatch from its forward to its backward, and should hold no more of them than that takes. There may
    be fewer microbatches than you would like.
    """
    # ? 1. The warm-up: how many forwards, so that there is something to do while messages are on their way?
    # ? 2. One forward, one backward, in turn.
    # ? 3. The backwards that are left.
    # For each rank that follows: what it has in work, and as many as hide a message down and one up.
    step = 1 + ceil(2 * message / 3)
    warm_up = min((ranks - 1 - rank) * step, microbatches)
    for microbatch in range(warm_up):
        yield f"{rank}F{microbatch}"
    for microbatch in range(microbatches - warm_up):
        yield f"{rank}F{warm_up + microbatch}"
        yield f"{rank}B{microbatch}"
    for microbatch in range(microbatches - warm_up, microbatches):
        yield f"{rank}B{microbatch}"
