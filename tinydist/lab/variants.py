"""Checks of values beside variants of the solution: what comes out if something else is computed, in any layout."""

import torch

from .differences import close, same
from .exercise import mistake
from .results import Values, there

SMALL = 99  # up to here whole numbers are soon the same by chance


class Varied(Values):
    """A result is compared with that of ``variants`` of the solution, too, each (words, old text, new text, ...). One
    that gives the same by chance is not told: numbers agree in most of the cases where the answer is wrong, words and
    small numbers also in all where only the variant is."""

    def __init__(self, *what, variants=(), **how):
        super().__init__(*what, **how)
        self.variants = [mistake(*each) for each in variants]

    def mistaken(self, exercise, trial, right, earlier=()):
        mine, before, found = self.seen(trial), exercise.before(self), {}
        for each in (*exercise.mistakes, *self.variants):
            alike = same(mine, self.seen(exercise.run(trial.case, each)))
            if alike and self.hold(before, exercise, each, [trial.case]):
                shares = self.shares(exercise, trial, each)
                if shares[1] == 1 or shares[0] > least(mine):
                    found[each] = *shares, self.places(exercise, trial, each)
        return {2: max(found, key=found.get).words} if found else super().mistaken(exercise, trial, right, earlier)

    def places(self, exercise, trial, mistake):
        """In how many of all that came back, in all cases, they are the same."""
        count = 0
        for case in exercise.cases:
            mine, its = (self.seen(each) or {} for each in (there(trial, case), exercise.run(case, mistake)))
            count += sum(at in its and close(each, its[at]) for at, each in mine.items())
        return count


def least(mine):
    """The part of the wrong cases above which two results are hardly alike by chance."""
    if len(mine) > 4 or any(isinstance(each, torch.Tensor) for each in mine.values()):
        return 0
    return 1 / 2 if any(type(each) is float or (type(each) is int and each > SMALL) for each in mine.values()) else 1
