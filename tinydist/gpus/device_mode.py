"""A rank's torch function mode: notes the call of torch that it is in, for what C++ allocates there (placement.py)."""

from torch.overrides import TorchFunctionMode

from .placement import HOST, call, new_tensors_on
from .rank_gpus import mine


class CallsNoted(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        before, call.given = call.given, args
        try:
            return self._with_options(func, args, kwargs) if kwargs else func(*args)
        finally:
            call.given, call.has_out = before, False

    def _with_options(self, func, args, kwargs):
        """Those that C++ understands otherwise, or does not hand on to the operator."""
        call.generator, call.has_out = kwargs.get("generator"), "out" in kwargs
        if kwargs.get("device") is None:
            return func(*args, **kwargs)
        device = mine().device(kwargs["device"])
        if device == HOST and (func.__name__.startswith("new_") or func.__name__.endswith("_like")):
            with new_tensors_on(HOST):
                return func(*args, **kwargs)
        return func(*args, **kwargs | {"device": device})
