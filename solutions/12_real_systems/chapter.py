"""What the exercises of this chapter share: their order and their notebook's beginning; results with variants."""

import torch

from tinydist.lab.author import Values, mistake
from tinydist.lab.differences import close

ORDER = ["batch_and_bucket", "silent_defaults", "choose_flags"]

INTRODUCTION = """\
# Exercises: the real systems

[Notebook 12](../notebooks/12_real_systems.ipynb) goes before these. You read the batch and the buckets of a \
run from settings in five units, name the defaults that are in force in a run, by its losses and its bytes, and choose \
Megatron-LM's flags for a goal. Three exercises, about 55 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function is called with runs, \
clusters and goals of several kinds. The first property that does not hold is explained.

**Hint.** `hint(silent_defaults)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` lists the exercises and what you have done; `.venv/bin/python -m tinydist check silent_defaults` checks, \
`hint silent_defaults` gives a hint, and `reset silent_defaults` puts the stub back."""

IMPORTS = """\
from itertools import product"""


class Varied(Values):
    """A result is compared with ``variants`` of the solution's, too, each (words, old text, new text, ...). Where it is
    wrong in several cases, one that gives the same by chance is not told: numbers agree in most, words and small
    numbers in all."""

    def __init__(self, *what, variants=(), **how):
        super().__init__(*what, **how)
        self.variants = [mistake(*each) for each in variants]

    def mistaken(self, exercise, trial, right, earlier=()):
        mine, before = self.seen(trial), exercise.before(self)
        suspects = *exercise.mistakes, *self.variants
        here = [each for each in suspects if self.same(trial, exercise.run(trial.case, each))]
        here = [each for each in here if self.hold(before, exercise, each, [trial.case])]
        others = [type(trial)(trial.program, case) for case in exercise.cases] if here else []
        wrong = [other for other in others if not self.same(other, exercise.right(other.case))]
        agree = {each: sum(self.same(other, exercise.run(other.case, each)) for other in wrong) for each in here}
        sure = {each for each in here if self.enough(mine, agree[each], len(wrong))}
        if sure:
            likely = [each for each in here if each in sure and agree[each] == max(agree[one] for one in sure)]
            return {2: max(likely, key=lambda each: sum(self.places(exercise, each, other) for other in others)).words}
        return super().mistaken(exercise, trial, right, earlier)

    def enough(self, mine, agree, wrong):
        if len(mine) > 4 or any(isinstance(each, torch.Tensor) for each in mine.values()):
            return True
        number = any(type(each) is float or (type(each) is int and each > 99) for each in mine.values())
        return agree == wrong or (number and agree > wrong / 2)

    def same(self, trial, run):
        mine, its = self.seen(trial), self.seen(run)
        if mine is None or its is None:
            return mine is its  # both end with an error
        return mine.keys() == its.keys() and all(close(mine[at], its[at]) for at in mine)

    def places(self, exercise, mistake, trial):
        """In how many of all that came back they are the same."""
        mine, its = (Values.seen(self, each) or {} for each in (trial, exercise.run(trial.case, mistake)))
        return sum(at in its and close(each, its[at]) for at, each in mine.items())
