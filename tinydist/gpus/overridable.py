"""Functions in the place of a tensor's own, called as torch's are: torch function modes and subclasses come first."""

from functools import wraps

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

from .rank_gpus import mine, of_thread


def overridable(function, real):
    """``function(tensor, ...)`` on a rank; what it replaced, ``real``, in threads that are none."""

    @wraps(real)
    def call(self, *args, **kwargs):
        if of_thread.gpus is None:
            if real.__name__ == "cuda" or any(map(names_a_gpu, (*args, *kwargs.values()))):
                mine()  # which says that there is none
            return real(self, *args, **kwargs)
        if has_torch_function_unary(self):
            return handle_torch_function(call, (self,), self, *args, **kwargs)
        return function(self, *args, **kwargs)

    return call


def names_a_gpu(value):
    return isinstance(value, torch.device | str) and str(value).startswith("cuda")


def of_rank(attribute, real):
    """A property that is ``attribute(tensor)`` on a rank, and else what it was."""
    return property(lambda self: real.__get__(self) if of_thread.gpus is None else attribute(self))
