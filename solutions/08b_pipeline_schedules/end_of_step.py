"""The end of the step: what a check of the norm costs before the optimizer's step, and after it."""

from tinydist.lab.author import Own, Varied, alone, exercise, mistake
from tinydist.pipeline_parallel import Costs, analyze, make_schedule

OWN = Own("your own arithmetic", "here it is arithmetic, and yours", ("tinydist.pipeline_parallel",))


def of(name, ranks, microbatches, seconds=1.0, **more):
    """(begins, ends) of a schedule whose passes take so long."""
    timed = analyze(make_schedule(name, ranks, microbatches), Costs(seconds, seconds, seconds, **more))
    return [float(min(each)) for each in timed.start], [float(max(each)) for each in timed.end]


def case(about, times, optimizer, redo):
    begins, ends = times
    return alone(lambda: (list(begins), list(ends), optimizer, redo), about)


def test_cases():
    yield case("ZB-H2 on 4 ranks", of("ZB-H2", 4, 8), 1.0, 40.0)
    yield case("1F1B on 4 ranks", of("1F1B", 4, 8), 0.5, 33.0)
    yield case("ZB-H1 on 3 ranks", of("ZB-H1", 3, 6), 1.0, 24.0)
    yield case("ZB-V on 4 ranks, with messages", of("ZB-V", 4, 8, 0.5, message=0.125), 0.25, 26.0)
    yield case("a clock that was not set to 0", ([100.0, 101.0, 103.0], [130.0, 133.0, 131.0]), 2.0, 50.0)
    yield case("the longest is neither the first nor the last", ([0.0, 1.0, 2.0], [20.0, 25.0, 23.0]), 1.0, 10.0)
    yield case("a rank in the middle begins first", ([3.0, 1.0, 4.0], [22.0, 24.0, 28.5]), 1.0, 20.0)
    yield case("a step that is quickly repeated", ([0.0, 4.0, 8.0], [20.0, 24.0, 28.0]), 1.0, 2.0)
    yield case("one rank", ([0.0], [24.0]), 1.0, 30.0)


LONGEST = "max(end - begin for begin, end in zip(begins, ends))"


@exercise(
    title="The end of the step",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        OWN,
        Varied(
            "both times of a step and the share of bad steps, for ZB-H2, 1F1B, ZB-H1, ZB-V and made-up times, with 1, "
            "3 and 4 ranks",
            names=["checked before", "checked after", "the share of bad steps"],
            tell=False,
            variants=[
                (
                    "Checked after, this is the rank that ends last, and another one may be busy for longer",
                    LONGEST,
                    "max((end, end - begin) for begin, end in zip(begins, ends))[1]",
                ),
                (
                    "Checked after, this is the rank that begins first, and another one may be busy for longer",
                    LONGEST,
                    "min((begin, end - begin) for begin, end in zip(begins, ends))[1]",
                ),
                (
                    "Checked after, the last rank need not be the one that is busy for longest",
                    LONGEST,
                    "(ends[-1] - begins[-1])",
                ),
                (
                    "Checked after, all ranks keep the pace of the one that is busy for longest, and not their mean",
                    LONGEST,
                    "sum(end - begin for begin, end in zip(begins, ends)) / len(ends)",
                ),
                ("Checked after, a rank's own beginning counts, too, and not its end alone", LONGEST, "max(ends)"),
                (
                    "Checked after, the pauses between the ranks' beginnings cost nothing: each rank goes by its own",
                    LONGEST,
                    "(max(ends) - max(begins))",
                ),
                (
                    "Checked before, the first beginning counts, and not the last one",
                    "max(ends) - min(begins)",
                    "max(ends) - max(begins)",
                ),
                (
                    "Checked before, the first beginning is that of any rank, and not of rank 0",
                    "max(ends) - min(begins)",
                    "max(ends) - begins[0]",
                ),
                (
                    "Checked before, the last end is that of any rank, and not of the last one",
                    "max(ends) - min(begins)",
                    "ends[-1] - min(begins)",
                ),
                (
                    "Checked before, the last end is that of any rank, and not of rank 0",
                    "max(ends) - min(begins)",
                    "ends[0] - min(begins)",
                ),
                (
                    "Checked before, the optimizer's step takes time, too",
                    "max(ends) - min(begins) + optimizer",
                    "max(ends) - min(begins)",
                ),
                (
                    "Checked after, each rank's optimizer steps at the same time as the others': it counts once",
                    f"{LONGEST} + optimizer",
                    f"{LONGEST} + optimizer * len(ends)",
                ),
                ("Checked before comes first, then checked after", "return before, after", "return after, before"),
                (
                    "A bad step costs `redo` seconds more than one that is checked after: `redo` is the whole price",
                    "(before - after) / redo",
                    "(before - after) / (redo + after)",
                ),
                (
                    "A bad step costs `redo` seconds more: it need not take the place of the step",
                    "(before - after) / redo",
                    "(before - after) / abs((redo - after) or 1e-9)",
                ),
                (
                    "A bad step takes `redo` seconds more than a good one that is checked after, and not than one that "
                    "is checked before: n (after + s redo) seconds against n before",
                    "(before - after) / redo",
                    "(before - after) / ((redo - before + after) or 1e-9)",
                ),
                (
                    "What every step gains is the difference of both, and it is weighed with `redo`",
                    "(before - after) / redo",
                    "(before - after) / after",
                ),
                (
                    "This is the share of good steps",
                    "min(1.0, (before - after) / redo)",
                    "1 - min(1.0, (before - after) / redo)",
                ),
                (
                    "A share is from 0 to 1, and no percent",
                    "min(1.0, (before - after) / redo)",
                    "100 * min(1.0, (before - after) / redo)",
                ),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "Checked before, no rank steps while another still has a pass to do: the last end of all counts, and the "
            "first beginning",
            "max(ends) - min(begins) + optimizer",
            "max(end - begin for begin, end in zip(begins, ends)) + optimizer",
        ),
        mistake(
            "Checked after, a rank goes on when its own passes are done, whatever the others do: its own beginning and "
            "end count",
            "max(end - begin for begin, end in zip(begins, ends)) + optimizer",
            "max(ends) - min(begins) + optimizer",
        ),
        mistake(
            "All ranks keep the pace of the one that is busy for longest, from its first pass to its last",
            "after = max(",
            "after = min(",
        ),
        mistake(
            "Rank 0 need not be the one that is busy for longest",
            "max(end - begin for begin, end in zip(begins, ends))",
            "(ends[0] - begins[0])",
        ),
        mistake(
            "The optimizer's step takes time wherever the check is: in each step once",
            "zip(begins, ends)) + optimizer",
            "zip(begins, ends))",
        ),
        mistake(
            "The first pass does not begin at 0 on every clock: a step is from a beginning to an end",
            "max(ends) - min(begins) + optimizer",
            "max(ends) + optimizer",
        ),
        mistake(
            "A bad step costs `redo` seconds, and every step gains the difference: at which share of bad ones are both "
            "the same?",
            "(before - after) / redo",
            "(before - after) / before",
        ),
        mistake("A share is at most 1", "min(1.0, (before - after) / redo)", "(before - after) / redo"),
    ],
    hints=[
        "Write down when each rank of ZB-H2 begins its first pass of step 1 and ends its last. When may it begin step "
        "2, if the norm is checked before the optimizer's step? And if it is checked after?",
        "All ranks move on by the same number of seconds from step to step, as each needs what the others send. Which "
        "rank allows the fewest?",
        "Checked before: all wait for the end of the last one, then the optimizer steps, and the first one to begin "
        "begins. Checked after: for each rank its own end, its optimizer's step, and its own beginning.",
        "Of n steps, a share of s is bad: n (after + s redo) seconds against n before.",
    ],
    why="A schedule moves its bubble to the two ends of the step, and a check of the norm before the optimizer's step "
    "makes all ranks pay for both. Measured on four models, ZB-2p with that check is 7 to 10 % slower than with the "
    "one after the step (Zero Bubble, table 7), and bad steps are rare, so a repeated one hardly counts.",
)
def end_of_step(begins, ends, optimizer, redo):
    """How long a step takes with each end: (checked before, checked after, the share of bad steps).

    ``begins[r]`` and ``ends[r]`` are the seconds when rank r begins its first pass and ends its last one, in a step
    that stands alone. In every step of a training run a rank does the same passes, with the same pauses between them.
    Then its optimizer's step takes ``optimizer`` seconds. Messages about the norm take no time.

    Checked before: no rank's optimizer steps before all ranks have ended their passes. Checked after: each steps when
    it has ended its own. Return the seconds from the beginning of one step to that of the next, in both ways; and from
    which share of bad steps on, 0 to 1, checking after is no longer faster, if a bad one takes ``redo`` seconds more,
    above 0. If it is faster even when all are bad, that is 1.
    """
    # ? When may the next step begin, in each of the two ways?
    before = max(ends) - min(begins) + optimizer
    after = max(end - begin for begin, end in zip(begins, ends)) + optimizer
    return before, after, min(1.0, (before - after) / redo)
