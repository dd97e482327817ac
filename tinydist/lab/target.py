"""A target: a property that an answer must have in a test case, relative to the reference."""

import re

from ..simulator.deadlock import DeadlockError
from ..simulator.matching import MismatchError
from ..simulator.stuck import StuckError
from .errors import Wrong, words

GUESS = ". They are off by about"  # a guess at the reason, said where no reason is known
PERHAPS = "Perhaps, as it gives the same here: "


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
    variants = ()  # other edits of the solution that are told as mistakes are

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
            perhaps = found.get(0, "") and f"{PERHAPS}{found[0]}"
            likely = found.get(2) or self.general(trial, right) or found.get(1) or (trial.case.ranks > 1 and perhaps)
            reason = likely or self.known(exercise, trial, right, perhaps)
            raise Wrong(because(reason, str(wrong)), wrong.picture) from None

    def mistaken(self, exercise, trial, right, earlier=()):
        """How alike -> the words of the likest mistake that gives the same, and gets as far; else of the first. 0: of
        one that gives something else in other worlds."""
        mine, its, before, found = self.seen(trial), self.seen(right), exercise.before(self), {}
        for mistake in (*exercise.suspects, *self.variants) if mine is not None else ():
            run = exercise.run(trial.case, mistake)
            other = self.seen(run) if run.error is None or self.of_errors else None
            how = 0 if other is None else self.alike(mine, other, its)
            if not how or not self.hold(before, exercise, mistake, [trial.case]):
                continue
            how, likeness = self.trust(exercise, trial, mistake, how, earlier)
            if how is not None and (how not in found or likeness > found[how][0]):
                found[how] = likeness, mistake.words
            if how == 2 and not likeness:
                break
        return {how: words for how, (_, words) in found.items()}

    def trust(self, exercise, trial, mistake, how, earlier):
        """How alike, where other worlds are looked at, too (None: not at all); and a tuple that tells the likest."""
        if self.hold([ENDS, *exercise.early, *exercise.before(self), self], exercise, mistake, earlier):
            return how, ()
        return (0 if self.telling(self.seen(trial)) else None), ()

    def telling(self, seen):
        """Could another mistake hardly lead to the same?"""
        return True

    def hold(self, targets, exercise, mistake, cases):
        return all(each.right_in(exercise, exercise.run(case, mistake)) for case in cases for each in targets)

    def right_in(self, exercise, run):
        try:
            if self.concerns(run, exercise):
                self.judge(exercise, run, exercise.right(run.case))
        except Wrong:
            return False
        return True

    def general(self, trial, right):
        """A reason that holds for any exercise."""
        return ""

    def known(self, exercise, trial, right, perhaps):
        """Where no reason is found: what can be said besides the numbers; ``perhaps``: a guess, or ""."""
        return perhaps


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


ENDS = Ends()


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
