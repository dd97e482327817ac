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
    """A result is compared with ``variants`` of the solution's, too, each (words, old text, new text, ...). A word or a
    small number is soon the same by chance: there a variant has to agree in all cases."""

    def __init__(self, *what, variants=(), **how):
        super().__init__(*what, **how)
        self.variants = [mistake(*each) for each in variants]

    def mistaken(self, exercise, trial, right, earlier=()):
        mine, before = self.seen(trial), exercise.before(self)
        here = [each for each in (*exercise.mistakes, *self.variants) if self.gives(exercise, each, trial)]
        here = [each for each in here if self.hold(before, exercise, each, [trial.case])]
        others = [type(trial)(trial.program, case) for case in exercise.cases] if here else []
        agree = [sum(self.gives(exercise, each, other) for other in others) for each in here]
        telling = [
            isinstance(each, float | torch.Tensor) or (type(each) is int and each > 99) for each in mine.values()
        ]
        if here and (any(telling) or len(mine) > 4 or max(agree) == len(others)):
            likely = [each for each, count in zip(here, agree) if count == max(agree)]
            return {
                2: max(likely, key=lambda each: sum(self.alike_in(exercise, each, other) for other in others)).words
            }
        return super().mistaken(exercise, trial, right, earlier)

    def gives(self, exercise, mistake, trial):
        mine, its = self.seen(trial), self.seen(exercise.run(trial.case, mistake))
        if mine is None or its is None:
            return mine is its  # both end with an error
        return mine.keys() == its.keys() and all(close(mine[at], its[at]) for at in mine)

    def alike_in(self, exercise, mistake, trial):
        """In how many places, of all that came back."""
        mine, its = (Values.seen(self, each) or {} for each in (trial, exercise.run(trial.case, mistake)))
        return sum(at in its and close(each, its[at]) for at, each in mine.items())
