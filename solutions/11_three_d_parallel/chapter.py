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
