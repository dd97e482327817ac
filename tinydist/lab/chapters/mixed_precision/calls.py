"""Answers that need no ranks, called with one input after another; and what the answers of this chapter may not use."""

from functools import cached_property

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...errors import Wrong
from ...messages import borrowed
from ...ranks import Case, Trials

SHORT = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
SOLVED = ("tinydist.precision", "tinydist.lab.chapters", "torch.amp", "torch.cuda.amp")
CALLED = {"_to_copy": "a cast (.to, .bfloat16, .half, autocast)", "lift_fresh": "torch.tensor"}  # by the learner


class Input(Case):
    """Told by what it is about alone: it is called on one rank."""

    def __str__(self):
        return self.about


def input_of(arguments, about, expected=None):
    """``arguments()``: a tuple, made anew."""
    return Input(1, lambda rank: arguments(), about, [expected])


class Short(TorchDispatchMode):
    """Notes the operators that take or make numbers of 16 or 8 bits."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        for verb, values in (("makes", result), ("takes", args)):
            self.found += [(CALLED.get(name, name), verb, dtype) for dtype in short(values)]
        return result


def short(values):
    """The dtypes of the tensors among them that have 16 or 8 bits."""
    if isinstance(values, torch.Tensor):
        return [values.dtype] if values.dtype in SHORT else []
    return [dtype for each in values for dtype in short(each)] if isinstance(values, list | tuple) else []


class Calls(Trials):
    def __init__(self, answer, cases):
        self.modes = []  # one for each case
        super().__init__(self.watched(answer), cases)

    def watched(self, answer):
        def watched(*arguments):
            self.modes.append(Short())
            with self.modes[-1]:
                return answer(*arguments)

        return watched

    @cached_property
    def all(self):
        trials = super().all
        for trial, mode in zip(trials, self.modes):
            trial.short = mode.found
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
    """No operator took or made numbers of 16 or 8 bits: on the way to them torch rounds."""
    for name, verb, dtype in trial.short[:1]:
        kind = str(dtype).removeprefix("torch.")
        raise Wrong(
            f"{name} {verb} {kind} numbers: torch rounds to them, and the task is to do without. Compute with float32, "
            "with float64, or with their bits as whole numbers"
        )
