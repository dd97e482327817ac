"""The plan that is done in time for the least money, when GPUs fail."""

import math
from math import inf, isclose
from typing import NamedTuple

from tinydist.lab.author import Malformed, Target, Wrong, alone, exercise, mistake

from .chapter import BY_HAND, numbers, unchanged

GB, YEAR = 1e9, 365 * 86400
NAMES = ("interval", "goodput", "days", "money")


class Plan(NamedTuple):
    name: str
    gpus: int
    seconds: float  # of a step
    batch: int  # tokens of a step
    peak: float  # bytes
    room: float  # bytes of a GPU
    price: float  # of a GPU and hour


A = Plan("A", 256, 20.0, 2**22, 70 * GB, 80 * GB, 2.0)
B = Plan("B", 512, 10.5, 2**22, 60 * GB, 80 * GB, 2.0)
C = Plan("C", 1024, 5.75, 2**22, 50 * GB, 80 * GB, 2.0)
OLD = Plan("old GPUs", 1024, 13.0, 2**22, 38 * GB, 40 * GB, 0.6)
NEW = Plan("new GPUs", 256, 8.0, 2**22, 120 * GB, 141 * GB, 4.5)
ALONE = Plan("one node", 8, 3.0, 2**19, 75 * GB, 80 * GB, 1.5)
TOKENS = 2**22 * 250_000
FAILS = 4 * YEAR  # seconds between failures of one GPU
OFTEN = YEAR / 10

CASES = [  # about, plans, tokens, days, seconds of a checkpoint and of a restart, between failures of a GPU
    ("one plan", [ALONE], 2**19 * 30_000, 1000, 60, 600, FAILS),
    ("time enough for all", [A, B, C], TOKENS, 90, 120, 900, FAILS),
    ("fewer days", [A, B, C], TOKENS, 40, 120, 900, FAILS),
    ("few days", [A, B, C], TOKENS, 20, 120, 900, FAILS),
    ("too few days", [C, B, A], TOKENS, 10, 120, 900, FAILS),
    ("the cheapest does not fit", [A._replace(peak=81 * GB), C, B], TOKENS, 90, 120, 900, FAILS),
    ("the cheapest has no byte to spare", [B, A._replace(peak=80 * GB), C], TOKENS, 90, 120, 900, FAILS),
    ("none fits", [each._replace(room=40 * GB) for each in (A, B, C)], TOKENS, 90, 120, 900, FAILS),
    ("GPUs of several kinds", [OLD, A, NEW], TOKENS, 60, 120, 900, FAILS),
    ("GPUs that fail often", [C, B, A], TOKENS, 36, 300, 1800, OFTEN),
    ("GPUs that fail often, and more money for few", [A._replace(price=2.15), C], TOKENS, 90, 300, 1800, OFTEN),
    (
        "two cost as much, and one is done sooner",
        [B, B._replace(name="D", seconds=5.25, price=4.0)],
        TOKENS,
        90,
        60,
        600,
        FAILS,
    ),
    ("two cost and take as much", [C, B._replace(name="E", peak=61 * GB), B], TOKENS, 90, 60, 600, FAILS),
    ("batches that differ", [A._replace(batch=2**20), B._replace(batch=2**21, seconds=6.0)], TOKENS, 90, 60, 0, FAILS),
]


def test_cases():
    for about, *given in CASES:
        yield alone(lambda given=given: (list(given[0]), *given[1:]), f"{about} ({given[2]} days)")


def planned(trial, name):
    """What the solution says of this plan, whether it may be taken or not; and the plan."""
    plans, tokens, _, *others = trial.arguments[0]
    (plan, *_) = (each for each in plans if each.name == name)
    return plan_for_budget([plan._replace(room=plan.peak)], tokens, inf, *others), plan


class Planned(Target):
    decides = True

    def seen(self, trial):
        return None if trial.error or trial.returned[0] is None else trial.returned[0]

    def alike(self, mine, other, right):
        return 2 * (mine["plan"] == other["plan"] and all(isclose(mine[name], other[name]) for name in NAMES))


class Numbers(Planned):
    """Of the plan that the answer names."""

    name = "numbers"

    def judge(self, exercise, trial, right):
        unchanged("plans", trial)
        got = trial.returned[0]
        if got is None:
            return
        names = [each.name for each in trial.arguments[0][0]]
        if not isinstance(got, dict) or "plan" not in got:
            raise Malformed(f'it returned {got!r}, where a dict with the name of a "plan" is right, or None')
        if got["plan"] not in names:
            raise Malformed(f"it names plan {got['plan']!r}, and there are {', '.join(map(repr, names))}")
        numbers({name: each for name, each in got.items() if name != "plan"}, NAMES)
        its, plan = planned(trial, got["plan"])
        for name in NAMES:
            if not isclose(got[name], its[name]):
                raise Wrong(
                    f"{name} of plan {plan.name!r}, on {plan.gpus} GPUs, is {got[name]:,.7g}, where {its[name]:,.7g} "
                    "is right"
                )

    def general(self, trial, right):
        """What the first wrong number would be right for."""
        got, (*_, checkpoint, restart, failing) = trial.returned[0], trial.arguments[0]
        its, plan = planned(trial, got["plan"])
        name = next(name for name in NAMES if not isclose(got[name], its[name]))
        between, t, days, money = failing / plan.gpus, its["interval"], its["days"], its["money"]
        lost = 1 / its["goodput"] - 1
        guesses = {
            "interval": [
                (
                    math.sqrt(2 * checkpoint * failing),
                    "This is the interval of one GPU. A run stops when any of its GPUs fails",
                ),
                (
                    math.sqrt(2 * checkpoint * between) * plan.gpus,
                    "Here M grows with the GPUs: it is between_failures / gpus",
                ),
            ],
            "goodput": [
                (1 - lost, "A second of work takes 1 + lost seconds: goodput is 1 / (1 + lost), and not 1 - lost"),
                (1 / (1 + lost - checkpoint / t), "The seconds of the checkpoints are missing"),
                (
                    1 / (1 + lost - restart / between + restart / t),
                    "A restart comes after a failure, once in M seconds",
                ),
                (lost, "This is what is lost"),
                (1 + lost, "This is what a second of work takes: goodput is one divided by it"),
            ],
            "days": [
                (days * 24, "These are hours"),
                (days * 86400, "These are seconds"),
                (days / plan.gpus, "A batch is of all GPUs together"),
                (days / (1 + lost) / (1 - lost), "A second of work takes 1 + lost seconds: divide by goodput"),
            ],
            "money": [
                (money * 3600, "The price is that of an hour, and these are seconds"),
                (money / 24, "The price is that of an hour, and these are days"),
                (money / (1 + lost), "GPUs are paid while they write checkpoints, and after failures, too"),
            ],
        }
        found = [words for number, words in guesses[name] if isclose(got[name], number)]
        return found[0] if found else ""


class Choice(Planned):
    name = "choice"

    def judge(self, exercise, trial, right):
        got, its = trial.returned[0], right.returned[0]
        if got is None:
            if its is not None:
                raise Wrong("it says that no plan will do, and there is one that fits and is done in time")
            return
        (_, plan), days = planned(trial, got["plan"]), trial.arguments[0][2]
        if plan.peak > plan.room:
            raise Wrong(f"{plan.name!r} takes {plan.peak / GB:g} GB of {plan.room / GB:g} at its peak: it does not fit")
        if got["days"] > days:
            raise Wrong(f"{plan.name!r} takes {got['days']:.1f} days, and there are {days}")
        if got["plan"] != its["plan"]:
            what = "costs less"
            if isclose(got["money"], its["money"]):
                what = "costs as much, and " + (
                    "comes first" if isclose(got["days"], its["days"]) else "is done sooner"
                )
            raise Wrong(f"{plan.name!r} will do, but another plan that will do {what}")


BETWEEN, LOST, HOURS = (
    "between_failures / plan.gpus",
    "checkpoint / interval + (interval / 2 + restart) / between",
    "seconds / 3600",
)
LEAST = '(each["money"], each["days"])'


@exercise(
    title="A plan for a budget",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        BY_HAND,
        Numbers("the seconds from checkpoint to checkpoint, goodput, days and money of the plan that you name"),
        Choice(
            "of the plans that fit and are done in time, the cheapest; then the one that is done first; then the first"
        ),
    ],
    mistakes=[
        mistake(
            "This is how often one GPU fails. A run stops when any of its GPUs does, so with n of them n times as "
            "often",
            BETWEEN,
            "between_failures",
        ),
        mistake(
            "A failure loses half an interval on average, so the best one is sqrt(2 C M), not sqrt(C M)",
            "math.sqrt(2 * checkpoint * between)",
            "math.sqrt(checkpoint * between)",
        ),
        mistake(
            "A failure loses half an interval, on average, not a whole one",
            LOST,
            LOST.replace("interval / 2", "interval"),
        ),
        mistake(
            "After a failure the run has to start again, which takes `restart` seconds",
            LOST,
            LOST.replace(" + restart", ""),
        ),
        mistake("The days are those without a failure or a checkpoint: divide by the goodput", "* (1 + lost)", "* 1"),
        mistake("All GPUs are paid, each for each hour", f"{HOURS} * plan.gpus", HOURS),
        mistake(
            "It has to be done in time with what is lost to checkpoints and failures",
            'figures["days"] <= days',
            'figures["days"] / (1 + lost) <= days',
        ),
        mistake(
            "Of those that will do this one is done first. The cheapest is asked for, and that is a slower one",
            LEAST,
            '(each["days"], each["money"])',
        ),
    ],
    hints=[
        "For each plan: M, the seconds between failures of all its GPUs together; the best t; what part of the time is "
        "lost; seconds, days, money. Keep those that fit and are done in time, and take the least.",
        "With n GPUs M is between_failures / n. What is lost is C/t + (t/2 + R)/M: its derivative, -C/t^2 + 1/(2M), "
        "is 0 at t = sqrt(2 C M), which Young found in 1974.",
        "Seconds are tokens / batch steps of so many seconds, times 1 + what is lost; goodput is one divided by that. "
        "Money is hours times GPUs times price.",
        "Python compares tuples from the left: min of a list by a key of money and days takes the first of those that "
        "are alike in both, and its default is what it returns for an empty list.",
    ],
    why="The price of a run is decided before it starts, and neither the fastest plan nor the cheapest GPU need be "
    "the one to take. With thousands of GPUs a run that nothing stops is an exception: whoever plans without failures "
    "is late.",
)
def plan_for_budget(plans, tokens, days, checkpoint, restart, between_failures):
    """Choose the plan that trains on ``tokens`` within ``days`` for the least money, though GPUs fail.

    Return {"plan": its name, "interval": ..., "goodput": ..., "days": ..., "money": ...}, or None if no plan will do.
    Of plans that cost as much, take the one that is done first, and of those that are done at once the first in the
    list.

    A plan has a ``name``, so many ``gpus``, the ``seconds`` of a step without failures, its ``batch`` in tokens, the
    bytes at its ``peak``, which must be at most the ``room`` of each of its GPUs, and a ``price`` for a GPU and hour.

    A GPU fails every ``between_failures`` seconds, and then the whole run stops: M = between_failures / gpus. Every t
    seconds of work a checkpoint takes C = ``checkpoint`` seconds. A failure loses the work since the last one, t/2 on
    average, and R = ``restart`` seconds. So a second of work takes 1 + C/t + (t/2 + R)/M seconds, and "goodput" is one
    divided by that. "interval" is the t for which it takes least.
    """
    possible = []
    for plan in plans:
        # ? The best interval, what is lost, days and money
        between = between_failures / plan.gpus
        interval = math.sqrt(2 * checkpoint * between)
        lost = checkpoint / interval + (interval / 2 + restart) / between
        seconds = tokens / plan.batch * plan.seconds * (1 + lost)
        figures = {"plan": plan.name, "interval": interval, "goodput": 1 / (1 + lost), "days": seconds / 86400}
        figures["money"] = seconds / 3600 * plan.gpus * plan.price
        # ? Will it do?
        if plan.peak <= plan.room and figures["days"] <= days:
            possible.append(figures)
    # ? Which one is it?
    return min(possible, key=lambda each: (each["money"], each["days"]), default=None)
