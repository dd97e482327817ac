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
