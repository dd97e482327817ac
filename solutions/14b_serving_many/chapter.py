"""What the exercises of this chapter share: their order, their notebook's beginning, and what they are judged by."""

import torch

from tinydist.lab.author import Values, mistake
from tinydist.lab.differences import close

ORDER = ["find_prefixes", "read_load_log", "plan_batch", "fastest_decode"]

INTRODUCTION = """\
# Exercises: serving many requests

[Notebook 14b](../notebooks/14b_serving_many.ipynb) goes before these. You build a prefix cache, read what the log of \
a load test says about latency, plan how many sequences a GPU serves in memory and in time, and choose GPUs and drafts \
for decoding. No ranks, no messages. Four exercises, about 100 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. It is judged by one property after \
the other, and the first that does not hold is explained.

**Hint.** `hint(find_prefixes)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` lists the exercises and what you have done; `.venv/bin/python -m tinydist check find_prefixes` checks, \
`hint find_prefixes` gives a hint, and `reset find_prefixes` puts the stub back."""

IMPORTS = """\
import math"""

SOLVED = ("tinydist.serving", "tinydist.attention", "tinydist.planner", "torch.nn.attention")


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
