"""Checks of values beside variants of the solution: what comes out if something else is computed, in any layout."""

import torch

from .differences import close
from .exercise import mistake
from .results import Values, there

SMALL = 99  # up to here whole numbers are soon the same by chance


class Varied(Values):
    """A result is compared with that of ``variants`` of the solution, too, each (words, old text, new text, ...). One
    that gives the same by chance is not told: numbers agree in most of the cases that are wrong, words and small
    numbers in all of them."""

    def __init__(self, *what, variants=(), **how):
        super().__init__(*what, **how)
        self.variants = [mistake(*each) for each in variants]

    def mistaken(self, exercise, trial, right, earlier=()):
        mine, before = self.seen(trial), exercise.before(self)
        here = [
            each for each in (*exercise.mistakes, *self.variants) if self.same(trial, exercise.run(trial.case, each))
        ]
        here = [each for each in here if self.hold(before, exercise, each, [trial.case])]
        others = [there(trial, case) for case in exercise.cases] if here else []
        wrong = [other for other in others if not self.same(other, exercise.right(other.case))]
        agree = {each: sum(self.same(other, exercise.run(other.case, each)) for other in wrong) for each in here}
        sure = [each for each in here if self.enough(mine, agree[each], len(wrong))]
        if not sure:
            return super().mistaken(exercise, trial, right, earlier)
        likely = [each for each in sure if agree[each] == max(map(agree.get, sure))]
        return {2: max(likely, key=lambda each: sum(self.places(exercise, each, other) for other in others)).words}

    def enough(self, mine, agree, wrong):
        if len(mine) > 4 or any(isinstance(each, torch.Tensor) for each in mine.values()):
            return True
        number = any(type(each) is float or (type(each) is int and each > SMALL) for each in mine.values())
        return agree == wrong or (number and agree > wrong / 2)

    def same(self, trial, run):
        mine, its = self.seen(trial), self.seen(run)
        if mine is None or its is None:
            return mine is its  # both end with an error
        return mine.keys() == its.keys() and all(close(mine[at], its[at]) for at in mine)

    def places(self, exercise, mistake, trial):
        """In how many of all that came back they are the same."""
        mine, its = (self.seen(each) or {} for each in (trial, exercise.run(trial.case, mistake)))
        return sum(at in its and close(each, its[at]) for at, each in mine.items())
