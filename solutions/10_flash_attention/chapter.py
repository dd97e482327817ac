"""What the exercises of this chapter share: their order and their notebook's beginning; queries, keys and values."""

import torch

from tinydist.lab.author import Flops, Values, Wrong, mistake
from tinydist.lab.differences import close

ORDER = ["merge_states", "padded_or_packed", "flash_row", "flash_column", "mended_flash"]

INTRODUCTION = """\
# Exercises: flash attention

[Notebook 10](../notebooks/10_flash_attention.ipynb) goes before these. You merge two finished attentions, predict \
what sequences of different lengths cost, write a row of tiles of the forward pass and a column of tiles of the \
backward pass, and mend a flash attention. Use any product, sum and maximum of `torch`, but neither \
`tinydist.attention` nor torch's own attention. Five exercises, about 115 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your function runs on small inputs,\
 whose lengths and tiles differ, and is judged on the values, on the matmuls that it computes, and on \
the bytes that it holds at their peak. The first property that does not hold is explained.

**Hint.** `hint(merge_states)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check merge_states` checks, \
`hint merge_states` gives a hint, and `reset merge_states` puts the stub back.

T is the number of queries, S that of keys, d the width of a head; e is that of the values. Position 0 is the first \
of the sequence. All tensors are float32, but for a few in float64 where the table says so."""

IMPORTS = """\
import math

import torch"""

SOLVED = ("tinydist.attention", "torch.nn.attention")
BY_HAND = "here it is for you to do"
FLOAT = 4  # bytes


def nothing(*tensors):
    """No change."""


def inputs(queries, keys, *, d=4, e=3, size=1.0, change=nothing):
    """Queries, keys, values: the same each time. ``size``: of the scores, some units; ``change``: of the tensors."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(*shape, generator=generator) for shape in ((queries, d), (keys, d), (keys, e)))
    q *= 2 * size
    change(q, k, v)
    return q, k, v


def low(q, k, v):
    """All scores are near -2048, and exact in float32; the log-sum-exp is to 1e-4."""
    for each in (q, k):
        each.copy_((4 * each).round() / 4)
    q[:, 0], k[:, 0] = -64, 64


def lowest(q, k, v):
    """The first query's scores are near -2^40: below any number that could stand for -inf. One key is seen, so that
    rounding does no harm."""
    q[:, 0], k[:, 0] = 0, 2**20
    q[0, 0] = -(2**21)


class Visits(Flops):
    """And no matmul is larger than one of the reference's, ``heads(case)`` of which may be one batch."""

    def __init__(self, holds, heads=lambda case: 1):
        super().__init__(holds, name="visits")
        self.heads = heads

    def judge(self, exercise, trial, right):
        (mine,), (its,) = self.seen(trial), self.seen(right)
        if mine and max(mine) > self.heads(trial.case) * max(its):
            raise Wrong(
                f"the scores of several tiles are made at once: a matmul has {max(mine):,} FLOPs, where one tile's has "
                f"{max(its):,}. Then they grow with the length, which is what tiles are to avoid: take tile after tile"
            )
        super().judge(exercise, trial, right)


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
