"""Answers that need no ranks, called with one input after another; and what the answers of this chapter may not use."""

from functools import cached_property

import torch

from ....simulator.record import Operator
from ...errors import Wrong
from ...messages import borrowed, of
from ...ranks import Case, Trials

SHORT = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
SOLVED = ("tinydist.precision", "tinydist.lab.chapters", "torch.amp", "torch.cuda.amp")


class Input(Case):
    """Told by what it is about alone: it is called on one rank."""

    def __str__(self):
        return self.about


def input_of(arguments, about, expected=None):
    """``arguments()``: a tuple, made anew."""
    return Input(1, lambda rank: arguments(), about, [expected])


class Calls(Trials):
    @cached_property
    def all(self):
        trials = super().all
        for trial in trials:
            if isinstance(trial.error, Exception):
                trial.error.__notes__ = []  # on which rank
        return trials


def own_work(answer):
    """A judge: it is not the library's, or torch's, in disguise."""

    def judge():
        for home in SOLVED:
            if borrowed(answer, home):
                raise Wrong(f"you use {home}, where this is solved; here it is for you to do")

    return judge


def no_cast(trial):
    """No operator gave 16 or 8 bits. To look at bits as at a number of 16 bits is no cast."""
    for entry in of(trial.run.record.programs[0], Operator):
        if entry.dtype in SHORT:
            kind = str(entry.dtype).removeprefix("torch.")
            raise Wrong(f"{entry.name} makes {kind} numbers: torch rounds there, and the task is to do without")
