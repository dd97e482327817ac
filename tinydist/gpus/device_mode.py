"""A rank's torch function mode: notes the call of torch that it is in, for what C++ allocates there (placement.py)."""

from torch.overrides import TorchFunctionMode

from .placement import call
from .rank_gpus import mine


class CallsNoted(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if kwargs and type(kwargs.get("device")) is int:  # which C++ takes for a GPU of its own
            kwargs = kwargs | {"device": mine().device(kwargs["device"])}
        before, call.given = call.given, args
        if kwargs and "generator" in kwargs:  # C++ hands on another object of it
            call.generator = kwargs["generator"]
        try:
            return func(*args, **kwargs) if kwargs else func(*args)
        finally:
            call.given = before
