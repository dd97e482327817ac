"""What the exercises of this chapter share: their order, their notebook's beginning, and what they are tried on."""

from math import isfinite
from typing import NamedTuple

import torch

from tinydist.lab.author import Malformed, Own, Values, kind, mistake
from tinydist.lab.differences import close

ORDER = ["mfu_of_run", "top_of_tooth", "bytes_of_plan"]

INTRODUCTION = """\
# Exercises: planning a run

[Notebook 13](../notebooks/13_planning_a_run.ipynb) goes before these. You find out how much of the peak a published \
run got, choose the number of tokens that fills a matmul's waves, and predict the memory of a plan to within 2 %. All \
three are arithmetic: no ranks, no tensors. Three exercises, about 65 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function is called with models, \
plans and prices of several kinds, published ones among them. The first property that does not hold is explained.

**Hint.** `hint(mfu_of_run)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check mfu_of_run` checks, \
`hint mfu_of_run` gives a hint, and `reset mfu_of_run` puts the stub back.

Units are bytes, seconds, FLOPs and FLOP/s, without kilo, mega or giga, unless a task says otherwise."""

IMPORTS = """\
import math"""

FORMULAS = ("tinydist.plan", "tinydist.planner", "tinydist.hardware", "tinydist.model")
BY_HAND = Own("your own arithmetic", "here it is arithmetic, and yours", FORMULAS)


class Model(NamedTuple):
    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int  # numbers inside the MLP
    gated: bool
    vocabulary: int
    sequence: int


def gpt(layers, width, heads, vocabulary=51200, sequence=2048):
    return Model(layers, width, heads, heads, 4 * width, False, vocabulary, sequence)


def llama(layers, width, heads, inner, kv_heads=None, vocabulary=32000, sequence=2048):
    return Model(layers, width, heads, kv_heads or heads, inner, True, vocabulary, sequence)


def number(name, given):
    if type(given) not in (int, float) or not isfinite(given):
        what = given if type(given) is float else kind(given)
        raise Malformed(f"{name} is {what}, where a number is right")


def numbers(got, names):
    """A dict of them."""
    if not isinstance(got, dict) or set(got) != set(names):
        raise Malformed(f"it returned {got!r}, where a dict is right: {', '.join(map(repr, names))}")
    for name in names:
        number(name, got[name])


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
