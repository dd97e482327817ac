"""Numbers that only the GPU would know: what a forecast answers when a program reads one.

loss.item(), float(loss), print(loss)       unknown: it prints as nan, and is listed with its line
if loss.item() > best, x[:count]            ForecastError with its line: where the program goes is not known
--value loss=3.0                            the number that is read on lines where ``loss`` stands
math.isfinite(loss.item()), isfinite(loss)  True, and listed: a forecast assumes that no number overflows
"""

import math
import re
import sys
from functools import partialmethod

import numpy
import torch
from torch._subclasses import FakeTensor
from torch.utils.weak import WeakIdKeyDictionary

from ..simulator.call_sites import site_of
from ..tracing.streams import host_waits
from .rank_gpus import mine
from .tensors import is_cuda
from .tensors import numpy as with_data

ASSUMED = {  # file of torch -> whose questions they are, what is taken for granted, and the answer
    torch.amp.grad_scaler.__file__: ("GradScaler", "no gradient overflows", 0.0),
    f"{torch.__path__[0]}/distributed/tensor/_random.py": ("DTensor's random numbers", "all ranks have one state", 1.0),
}
answers = WeakIdKeyDictionary()  # result of torch.isnan and the like -> what it is taken to be


class ForecastError(RuntimeError):
    """The program's way depends on a number that is not known."""


def refuse(what):
    where = site_of(sys._getframe(2))
    raise ForecastError(
        f"forecast: {where}\n{what} a number that only the GPU would know: with --fake, what is on it has no data. "
        "Give the number (--value NAME=NUMBER, of a name on that line), or run with real numbers, without --fake, on "
        "fewer ranks"
    )


class Unknown(float):
    """A number of which nothing is known. What is computed from it is not known either."""

    def __new__(cls, *_):
        return super().__new__(cls, math.nan)

    def _computed(self, *_):
        return Unknown()

    def _steers(self, *_, what="compares"):
        refuse(f"the program {what}")

    __bool__ = partialmethod(_steers, what="asks for the truth of")
    __int__ = __index__ = __trunc__ = __floor__ = __ceil__ = partialmethod(_steers, what="counts by")
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _steers
    __hash__ = float.__hash__

    def __format__(self, spec):
        width = re.match(r"(?:.?[<>^])?[+ -]?0?(\d*)", spec)[1]
        return f"{'nan':>{width}}" if width else "nan"


for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Unknown, f"__{name}__", Unknown._computed)
    setattr(Unknown, f"__r{name}__", Unknown._computed)
for name in ("neg", "pos", "abs", "round"):
    setattr(Unknown, f"__{name}__", Unknown._computed)


# What is asked of a tensor.


def wait_for(tensor):
    """As a program that reads a number of the GPU."""
    if is_cuda(tensor):
        host_waits()


def known(what):
    """The number that is given for the line which reads, or None; the reading is listed."""
    frame = sys._getframe(2)
    if frame.f_code.co_filename in ASSUMED:
        who, why, answer = ASSUMED[frame.f_code.co_filename]
        mine().note(who, why)
        return answer
    site = str(site_of(frame))
    line = site.rpartition(": ")[2]
    for name, value in mine().values.items():
        if re.search(rf"\b{re.escape(name)}\b", line):
            return value
    mine().record.reads.setdefault(site, what)
    return None


def item(tensor):
    if not isinstance(tensor, FakeTensor):
        return real["item"](tensor)
    wait_for(tensor)
    value = answers[tensor] if tensor in answers else known("item")
    return Unknown() if value is None else value


def as_float(tensor):
    if not isinstance(tensor, FakeTensor):
        return real["__float__"](tensor)
    wait_for(tensor)
    value = known("float")
    return math.nan if value is None else float(value)


def steering(name, kind):
    def ask(tensor):
        if not isinstance(tensor, FakeTensor):
            return real[name](tensor)
        wait_for(tensor)
        value = answers[tensor] if tensor in answers else known(kind.__name__)
        return refuse("the program needs") if value is None else kind(value)

    return ask


def tolist(tensor):
    if not isinstance(tensor, FakeTensor):
        return real["tolist"](tensor)
    wait_for(tensor)
    known("tolist")
    return nested(tuple(tensor.shape))


def nested(shape):
    return [nested(shape[1:]) for _ in range(shape[0])] if shape else Unknown()


def to_numpy(tensor, *, force=False):
    if not isinstance(tensor, FakeTensor):
        return with_data(tensor, force=force)
    wait_for(tensor)
    known("numpy")
    return numpy.full(tuple(tensor.shape), math.nan)


def formatted(tensor, spec):
    if not isinstance(tensor, FakeTensor):
        return real["__format__"](tensor, spec)
    wait_for(tensor)
    known("print")
    return format(Unknown(), spec) if tensor.dim() == 0 else f"<{list(tensor.shape)}, not known>"


def represented(tensor, *, tensor_contents=None):
    if not isinstance(tensor, FakeTensor):
        return real["__repr__"](tensor, tensor_contents=tensor_contents)
    wait_for(tensor)
    known("print")
    return f"tensor(..., size={tuple(tensor.shape)}, dtype={tensor.dtype}, device='{tensor.device}')"


def taken_to_be(ask, answer):
    """torch.isnan, isinf, isfinite: a forecast assumes that no number overflows."""

    def asked(tensor):
        result = ask(tensor)
        if isinstance(result, FakeTensor):
            mine().note(f"torch.{ask.__name__}", f"taken to be {answer}")
            answers[result] = answer
        return result

    return asked


QUESTIONS = {"isfinite": True, "isnan": False, "isinf": False}  # of modules math and torch, and of tensors
READS = {
    "item": item,
    "tolist": tolist,
    "numpy": to_numpy,
    "__float__": as_float,
    "__bool__": steering("__bool__", bool),
    "__int__": steering("__int__", int),
    "__index__": steering("__index__", int),
    "__format__": formatted,
    "__repr__": represented,
}
real = {name: getattr(torch.Tensor, name) for name in READS}
