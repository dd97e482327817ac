"""What the exercises of this chapter share: their order and their notebook's beginning; results with variants."""

import torch

from tinydist.lab.author import Values, mistake
from tinydist.lab.differences import close

ORDER = ["flash_kernel", "choose_tile", "time_of_versions", "first_backend"]

INTRODUCTION = """\
# Exercises: flash kernels

[Notebook 10b](../notebooks/10b_flash_kernels.ipynb) goes before these. You write the forward pass of flash attention \
as a Triton kernel, choose the tile of a kernel for a GPU and predict what it loads, predict what four versions of \
flash attention do with a GPU, and find out which backend PyTorch runs. Four exercises, about 85 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. Your kernel runs in Triton's \
interpreter, on your CPU, and is judged on its output and on the record of what each of its programs loads. The first \
property that does not hold is explained. Without Triton the check of the kernel says that it is skipped: on Linux, \
`make kernels` installs it.

**Hint.** `hint(flash_kernel)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check flash_kernel` checks, \
`hint flash_kernel` gives a hint, and `reset flash_kernel` puts the stub back."""

IMPORTS = """\
import math
import os

os.environ["TRITON_INTERPRET"] = "1"  # must be set before Triton is imported

import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

try:
    import triton.language as tl
except ImportError:  # the check of flash_kernel will say that it is skipped
    from tinydist.lab.triton_answers import tl"""

SOLVED = ("tinydist.attention",)
BY_HAND = "here it is for you to do"


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
