"""A step must be ready in time: with how few GPUs, and how is the global batch split?"""

from random import Random

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, PLANNERS


def tree(latency, sending):
    """Seconds of an all-reduce of all gradients, by the number of GPUs."""

    def all_reduce(gpus):
        return 0.0 if gpus == 1 else 2 * (gpus - 1).bit_length() * latency + 2 * (gpus - 1) / gpus * sending

    return all_reduce


def ring(latency, sending):
    def all_reduce(gpus):
        return 2 * (gpus - 1) * (latency + sending / gpus)

    return all_reduce


def case(about, *arguments):
    return alone(lambda: arguments, about)


def test_cases():
    #              batch fits deadline forward optimizer all_reduce
    yield case("one GPU is enough", 8, 2, 1.0, 0.02, 0.01, tree(1e-4, 0.05))
    yield case("no latency, and an all-reduce that hides", 96, 4, 0.2, 0.02, 0.01, tree(0.0, 0.03))
    yield case("an all-reduce that hides only behind large microbatches", 96, 8, 0.45, 0.02, 0.01, tree(1e-4, 0.12))
    yield case("a large optimizer", 64, 4, 0.40, 0.02, 0.17, tree(1e-4, 0.02))
    yield case("microbatches that must divide the share", 60, 7, 0.35, 0.02, 0.01, tree(1e-3, 0.1))
    yield case("small microbatches, behind which little hides", 64, 2, 0.5, 0.02, 0.01, tree(0.0, 0.1))
    yield case("as many GPUs as sequences", 32, 4, 0.14, 0.02, 0.01, tree(1e-4, 0.05))
    yield case("a deadline that nobody keeps, because the all-reduce shows", 32, 4, 0.14, 0.02, 0.01, tree(1e-4, 0.06))
    yield case("a ring that takes longer with each GPU", 240, 2, 0.6, 0.02, 0.01, ring(2e-3, 0.02))
    yield case("a ring that takes too long", 240, 2, 0.3, 0.02, 0.01, ring(4e-3, 0.02))
    yield case("shares of 8, 7 and 4, of which 7 has no microbatch but 1", 56, 4, 0.5, 0.02, 0.01, tree(0.0, 0.11))
    yield case("a deadline that is kept to the moment", 16, 4, 0.5, 0.03125, 0.125, tree(0.0, 0.0))
    yield case("a share that the largest microbatch does not divide, and time", 12, 5, 1.0, 0.02, 0.01, tree(0.0, 0.1))
    for seed in range(12):
        draw = Random(seed)
        batch, fits, deadline = draw.randint(6, 90), draw.randint(2, 9), draw.uniform(0.2, 1.5)
        reduced = tree(0.0, draw.uniform(0.02, 0.2))
        yield case(f"numbers that were drawn ({seed})", batch, fits, deadline, 0.02, 0.01, reduced)


def ways():
    """What somebody may take otherwise."""
    return {
        "Backward takes twice as long as forward": planned(computing=2, hides=1),
        "Forward and backward take 3 times forward for each sequence of the share": planned(computing=2),
        "The all-reduce hides behind backward, which takes twice as long as forward": planned(hides=1),
        "Gradients are accumulated, and reduced once: not once for each microbatch": planned(often=True),
        "The optimizer is not shared: it takes as long on each GPU": planned(shared=True),
        "The share of a GPU is microbatch x accumulation, whole numbers": planned(uneven=True),
        "Any number of GPUs that divides the batch may do, and not powers of two alone": planned(powers=True),
        "There may be as many GPUs as sequences": planned(most=lambda batch: batch - 1),
        "There may be as many GPUs as sequences, and not only half as many": planned(most=lambda batch: batch // 2),
        "A microbatch may have `fits` sequences": planned(fewer=1),
        "It is the fewest GPUs that are asked for": planned(fewest=False),
        "Gradients may be accumulated: the microbatch need not be the whole share": planned(whole=True),
        "The optimizer comes after the all-reduce, and does not hide it": planned(beside=True),
    }


def planned(
    computing=3,
    hides=2,
    often=0,
    shared=0,
    uneven=0,
    powers=0,
    most=lambda batch: batch,
    fewer=0,
    fewest=1,
    whole=0,
    beside=0,
):
    def way(batch, fits, deadline, forward, optimizer, all_reduce):
        for gpus in range(1, most(batch) + 1) if fewest else range(most(batch), 0, -1):
            share = batch // gpus
            for size in range(min(fits - fewer, share), 0, -1):
                if batch % gpus or (share % size and not uneven) or (powers and gpus & (gpus - 1)):
                    continue
                waiting = max(0.0, (share // size if often else 1) * all_reduce(gpus) - hides * forward * size)
                after = optimizer / (gpus if shared else 1)
                seconds = computing * forward * share + (max(waiting, after) if beside else waiting + after)
                if seconds <= deadline and not (whole and size < share):
                    return gpus, size, share // size
        return 0, 0, 0

    return way


class Split(Values):
    def general(self, trial, right):
        """What cannot be, whatever it was computed from."""
        (batch, fits, *_), (gpus, microbatch, times) = trial.case.arguments(0), trial.returned[0]
        if gpus and batch % gpus:
            return f"{gpus} GPUs do not get equal shares of {batch} sequences: the product of all three is the batch"
        if gpus * microbatch * times not in (0, batch):
            return (
                f"{gpus} GPUs x {microbatch} x {times} are {gpus * microbatch * times} sequences, and the batch has "
                f"{batch}: a microbatch must divide the share of a GPU"
            )
        if microbatch > fits:
            return f"A microbatch of {microbatch} is not there at once: at most {fits} fit"
        return super().general(trial, right)


COMPUTING, LAST = "3 * forward * share", "2 * forward * microbatch"
ROOM = "range(min(fits, share), 0, -1)"


@exercise(
    title="The fewest GPUs for a deadline",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, PLANNERS),
        Split(
            "the fewest GPUs, and with these the largest microbatch; batches of 8 to 240 sequences, trees and rings; "
            "(0, 0, 0) where no split is in time",
            names=("the number of GPUs", "the microbatch", "the accumulation"),
            ways=ways(),
        ),
    ],
    mistakes=[
        mistake(
            "Only the last microbatch reduces, so the all-reduce hides behind the backward of that one alone",
            LAST,
            "2 * forward * share",
        ),
        mistake(
            "The all-reduce starts when the last backward has begun: a forward pass hides nothing",
            LAST,
            "3 * forward * microbatch",
        ),
        mistake("As much of the all-reduce as backward is long does hide", f" - {LAST}", ""),
        mistake("The optimizer takes its time in each step, too", " + optimizer", ""),
        mistake(
            "Activations of more than `fits` sequences are not there at once: the microbatch is at most `fits`",
            ROOM,
            "range(share, 0, -1)",
        ),
        mistake(
            "Of the microbatches that fit the largest is asked for: its backward hides most",
            ROOM,
            "range(1, min(fits, share) + 1)",
        ),
        mistake(
            "Each GPU computes its share of the batch alone, forward and backward: 3 times forward for each sequence "
            "of it, whatever the microbatch is",
            COMPUTING,
            "3 * forward * microbatch",
        ),
        mistake("A step that ends at the deadline is in time", "<= deadline", "< deadline"),
    ],
    hints=[
        "global batch = microbatch x accumulation x GPUs, all three of them whole. Go through the numbers of GPUs "
        "from 1 on, skip those that do not divide the batch, and return the first that is in time.",
        "Which microbatch is best for a number of GPUs? The time of forward and backward is the same for all. But the "
        "larger the last microbatch is, the more of the all-reduce hides.",
        "A step takes 3 x forward x share, then what all_reduce(gpus) is longer than 2 x forward x microbatch, and "
        "then the optimizer. A microbatch must divide the share.",
    ],
    why="Two things that look like matters of memory and of waiting are one: the microbatch bounds how much of the "
    "all-reduce can hide. And some deadlines are kept by no number of GPUs, because the optimizer, and what does not "
    "hide of the all-reduce, stay as they are.",
)
def fewest_gpus(batch, fits, deadline, forward, optimizer, all_reduce):
    """With how few GPUs is a step in time, and how is the global batch split?

    A step has ``batch`` sequences and may take ``deadline`` seconds. A GPU computes microbatches of at most ``fits``
    sequences. Forward takes ``forward`` seconds for each sequence, and backward twice as long. Gradients are
    accumulated, and reduced once: the all-reduce takes ``all_reduce(gpus)`` seconds, a function that you call, and
    hides behind the backward of the last microbatch, as far as that is long enough. (Take it that it can start when
    that backward starts.) Then the optimizer takes ``optimizer`` seconds.

    Return (GPUs, microbatch, accumulation), whole numbers whose product is ``batch``: with the fewest GPUs that are in
    time, and with the largest microbatch for that number of GPUs. Return (0, 0, 0) if no split is in time.
    """
    # ? Which numbers of GPUs and which microbatches are possible, and how long does each step take?
    for gpus in range(1, batch + 1):
        if batch % gpus:
            continue
        share = batch // gpus
        for microbatch in range(min(fits, share), 0, -1):
            if share % microbatch:
                continue
            waiting = max(0.0, all_reduce(gpus) - 2 * forward * microbatch)
            if 3 * forward * share + waiting + optimizer <= deadline:
                return gpus, microbatch, share // microbatch
    return 0, 0, 0
