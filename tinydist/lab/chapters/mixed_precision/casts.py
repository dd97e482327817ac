"""Casts to 16 and 8 bits, which torch rounds in: answers that do the rounding themselves may use none."""

from functools import cached_property

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...alone import Calls
from ...errors import Wrong

SHORT = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
CALLED = {"_to_copy": "a cast (.to, .bfloat16, .half, autocast)", "lift_fresh": "torch.tensor"}  # by the learner


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


class CastsNoted(Calls):
    def __init__(self, answer, cases):
        self.modes = []  # one for each case
        super().__init__(self.noted(answer), cases)

    def noted(self, answer):
        def noted(*arguments):
            self.modes.append(Short())
            with self.modes[-1]:
                return answer(*arguments)

        return noted

    @cached_property
    def all(self):
        trials = super().all
        for trial, mode in zip(trials, self.modes):
            trial.short = mode.found
        return trials


def no_cast(trial):
    """No operator took or made numbers of 16 or 8 bits: on the way to them torch rounds."""
    for name, verb, dtype in trial.short[:1]:
        kind = str(dtype).removeprefix("torch.")
        raise Wrong(
            f"{name} {verb} {kind} numbers: torch rounds to them, and the task is to do without. Compute with float32, "
            "with float64, or with their bits as whole numbers"
        )
