"""A target: a property that an answer must have in a test case, relative to the reference."""

import re

from ..simulator.deadlock import DeadlockError
from ..simulator.matching import MismatchError
from ..simulator.stuck import StuckError
from .errors import Wrong, words

GUESS = ". They are off by about"  # a guess at the reason, said where no reason is known


class Malformed(Wrong):
    """It says what it is: no mistake explains it better."""


class Target:
    """``judge`` raises Wrong, with the numbers. Which mistake it is follows from ``seen``: what the target looks at,
    compared with what the reference gives when it makes one mistake after another."""

    name = ""  # as the verdict calls it
    measured = False  # is it judged only in cases that are measured?
    operators = False  # does it look at what ranks compute and hold? To take that down costs more than the ranks do
    decides = False  # where it does not hold, no other case is run
    of_errors = False  # does it look at runs that do not come to their end?
    torchs = ""  # a word in names of torch's functions that should not be called

    def __init__(self, holds):
        self.holds = holds

    def looks_at(self, case, exercise):
        return case.measured or not (self.measured and exercise.measured)

    def concerns(self, trial, exercise):
        return trial.error is None and self.looks_at(trial.case, exercise)

    def judge(self, exercise, trial, right):
        """``right``: the trial of the reference."""
        raise NotImplementedError

    def seen(self, trial):
        """None: nothing that could be compared."""
        return None if trial.error is not None else self.shown(trial)

    def shown(self, trial):
        """By a run that has come to its end."""

    def alike(self, mine, other, right):
        """Do an answer and a mistake give the same? 1: in what is told first; 2: in all."""
        return 2 * (mine == other)

    def compare(self, exercise, trial, earlier=()):
        """``earlier``: cases in which the answer is right."""
        right = exercise.right(trial.case)
        try:
            self.judge(exercise, trial, right)
        except Malformed:
            raise
        except Wrong as wrong:
            found = self.mistaken(exercise, trial, right, earlier)
            reason = found.get(2) or self.general(trial, right) or found.get(1)
            if not reason and trial.case.ranks > 1:
                reason = found.get(0)
            reason = reason or self.known(exercise, trial, right) or found.get(0)
            raise Wrong(because(reason, str(wrong)), wrong.picture) from None

    def mistaken(self, exercise, trial, right, earlier=()):
        """How alike -> the words of the first mistake that gives the same, and gets as far. 0: of one that would have
        shown in an earlier world."""
        mine, its, found, likest = self.seen(trial), self.seen(right), {}, 0
        for mistake in exercise.suspects if mine is not None else ():
            run = exercise.run(trial.case, mistake)
            if run.error is not None and not self.of_errors:
                continue
            other, before = self.seen(run), exercise.before(self)
            how = 0 if other is None else self.alike(mine, other, its)
            share = self.elsewhere(exercise, trial, mistake) if how == 2 else 1
            how = how if share == 1 else int(share > likest)
            if not how or (how in found and share == 1) or not self.hold(before, exercise, mistake, [trial.case]):
                continue
            if not self.hold([Ends(), *exercise.early, *before, self], exercise, mistake, earlier):
                how = 0
            if how and share < 1:
                found[how], likest = mistake.words, share
            elif how or self.telling(mine):
                found.setdefault(how, mistake.words)
            if how == 2:
                break
        return found

    def elsewhere(self, exercise, trial, mistake):
        """In which part of the other cases they are alike, too."""
        return 1

    def telling(self, seen):
        """Could another mistake hardly lead to the same?"""
        return True

    def hold(self, targets, exercise, mistake, cases):
        return all(each.holds_of(exercise, mistake, case) for case in cases for each in targets)

    def holds_of(self, exercise, mistake, case):
        run = exercise.run(case, mistake)
        try:
            if self.concerns(run, exercise):
                self.judge(exercise, run, exercise.right(case))
        except Wrong:
            return False
        return True

    def general(self, trial, right):
        """A reason that holds for any exercise."""
        return ""

    def known(self, exercise, trial, right):
        """Where no reason is found: what can be said besides the numbers."""
        return ""


def because(reason, facts):
    if not reason:
        return facts
    facts = facts.partition(GUESS)[0]
    return f"{reason}{'' if reason.endswith(('.', '?', '.)')) else '.'}\n{facts[0].upper()}{facts[1:]}"


class Ends(Target):
    """Every exercise has it: the answer finishes."""

    name, decides, of_errors = "runs", True, True

    def __init__(self):
        super().__init__("")

    def __eq__(self, other):
        return type(other) is Ends

    def __hash__(self):
        return hash(Ends)

    def concerns(self, trial, exercise):
        return True

    def judge(self, exercise, trial, right):
        if isinstance(trial.error, StuckError) or trial.stubbed:
            raise trial.error  # it is not judged
        if trial.error is not None:
            raise Wrong(words(trial.error))

    def seen(self, trial):
        """The error; of hanging ranks the calls in which they hang, without the lines of code."""
        if trial.error is None or isinstance(trial.error, Wrong):
            return None
        lines = [line.split(", at ")[0] for line in str(trial.error).splitlines() if not line.strip().startswith("at ")]
        if isinstance(trial.error, MismatchError):  # of those only how many dimensions there are
            lines = sorted(each.count(",") for each in re.findall(r"\[.*?\]", "\n".join(lines)))
        return type(trial.error), lines

    def telling(self, seen):
        return False

    def alike(self, mine, other, right):
        return 2 if mine == other else int(mine[0] is other[0] is DeadlockError and calls(mine[1]) == calls(other[1]))


def calls(lines):
    """In which ranks hang: send, recv."""
    return set(re.findall(r" waits? in (\w+)", "\n".join(lines)))


def drawing(name, *arguments):
    """Draws what is wrong, when it is called: matplotlib takes its time to load."""

    def draw():
        from .. import visuals

        return getattr(visuals, name)(*arguments)

    return draw


def draw_traffic(trial):
    return drawing("traffic", trial.run)
