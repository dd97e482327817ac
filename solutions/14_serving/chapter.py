"""What the exercises of this chapter share: their order, their notebook's beginning, and what they are judged by."""

import re

import torch

from tinydist.lab.author import Own, Values, mistake
from tinydist.lab.differences import close

ORDER = ["share_blocks", "decode_by_table", "next_pass", "mended_blocks"]

INTRODUCTION = """\
# Exercises: serving

[Notebook 14](../notebooks/14_serving.ipynb) goes before these. You hand out blocks that sequences share until they \
write, decode over keys that lie in blocks, decide who runs when memory is short, and find three bugs in a cache of \
blocks. No ranks, no messages. Four exercises, about 125 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. It is judged by one property after \
the other, and the first that does not hold is explained.

**Hint.** `hint(share_blocks)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` lists the exercises and what you have done; `.venv/bin/python -m tinydist check share_blocks` checks, \
`hint share_blocks` gives a hint, and `reset share_blocks` puts the stub back.

Blocks are counted from 0, and so are the tokens of a sequence: token i lies in slot i % size of the block that its \
table names at place i // size. Verdicts tell in short what happens to sequences: a+6, a gets 6 tokens more; b=a, b \
begins as a; a-3, the last 3 are taken back; a?, it is read; a., it ends."""

IMPORTS = """\
import math

import torch"""

SOLVED = ("tinydist.serving", "tinydist.attention", "tinydist.planner", "torch.nn.attention")
BY_HAND = Own("built by yourself", "here it is for you to build", SOLVED, torchs="attention")


def events_of(text):
    """a+6 b=a b-3 b? a. as the introduction has it."""
    for name, sign, rest in re.findall(r"(\w)([+=?.-])(\w*)", text):
        what = {"+": "add", "=": "fork", "-": "drop", "?": "read", ".": "end"}[sign]
        yield (what, rest, name) if what == "fork" else (what, name, *map(int, [rest] if rest else []))


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
