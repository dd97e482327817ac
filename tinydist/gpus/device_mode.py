"""The torch function mode of a rank: notes which call of torch it is in, for what C++ allocates there (placement.py)."""

from torch.overrides import TorchFunctionMode

from .placement import call


class CallsNoted(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        before, call.given = call.given, args
        try:
            return func(*args, **kwargs) if kwargs else func(*args)
        finally:
            call.given = before
