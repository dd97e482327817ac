"""What the exercises of this chapter share: their order, their notebook's beginning, numbers, results with variants."""

import torch

from tinydist.lab.author import Own, Values, mistake
from tinydist.lab.differences import close

ORDER = ["groups", "clip", "place_axes", "tokens_for_zero", "mended_two_axes"]

INTRODUCTION = """\
# Exercises: data, tensor and pipeline parallel together

[Notebook 11](../notebooks/11_three_d_parallel.ipynb) goes before these. You say who is in whose group, for any axes \
in any order, clip by the norm of a model that is cut in three ways, place three axes on nodes so that the network \
between them is used least, say from how many tokens on each stage of ZeRO hides what it sends, and find bugs in a \
step with two axes. Use the collectives of `torch.distributed`, but not `tinydist.training`. Five exercises, about \
110 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function runs on simulated \
ranks, in worlds of several sizes, and is judged on the values and on the bytes sent. The first property that does not \
hold is explained.

**Hint.** `hint(groups)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check groups` checks, `hint \
groups` gives a hint, and `reset groups` puts the stub back.

A mesh has the axes pp (stages of a pipeline), dp (replicas) and tp (parts of each matrix)."""

IMPORTS = """\
import math
from itertools import permutations
from math import prod

import torch
import torch.distributed as dist"""

NO_ENGINE = Own(
    "not tinydist.training",
    "write it with the collectives of torch.distributed",
    {"tinydist.training": "tinydist.training", "tinydist.tensor_parallel": "tinydist.tensor_parallel"},
)


def numbers(*shape, seed, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


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
