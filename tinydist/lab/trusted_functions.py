"""Protects the functions that checks use: an answer that monkeypatches `torch.allclose` does not pass."""

import builtins
import math
import sys
from functools import cached_property
from itertools import chain
from types import FunctionType

import torch

BUILT_IN = "abs all any dict float int isinstance len list max min range round set sorted str sum tuple type zip"
OF_TORCH = "allclose cat equal isclose isfinite isinf isnan stack tensor"
OF_TENSORS = (
    "abs all allclose any copy_ detach double equal flatten isclose isfinite isnan item max min nbytes nonzero norm "
    "numel shape sort sum tolist untyped_storage __eq__ __ne__ __gt__ __lt__ __sub__ __mul__ __truediv__ __invert__"
)
OF_EXERCISES = "reference program targets cases"
METHODS = FunctionType, property, cached_property
TOOLS = {}  # (where it is, its name) -> what it is
JUDGED_BY = {}  # the same, of the exercise that is judged
CODES = {}  # function -> its code, which can be replaced, too


def remember():
    """The lab's own functions are among them: this is called when all of it is loaded."""
    for place, names in ((builtins, BUILT_IN), (torch, OF_TORCH), (torch.Tensor, OF_TENSORS)):
        TOOLS.update({(place, name): getattr(place, name) for name in names.split()})
    ours = [module for name, module in sys.modules.items() if name.startswith(__package__)]
    for place in (math, *ours):
        functions = {name: thing for name, thing in vars(place).items() if callable(thing)}
        TOOLS.update({(place, name): thing for name, thing in functions.items()})
        for made in functions.values():
            if isinstance(made, type) and made.__module__.startswith(__package__):
                TOOLS.update({(made, name): thing for name, thing in vars(made).items() if isinstance(thing, METHODS)})
    CODES.update({thing: thing.__code__ for thing in TOOLS.values() if isinstance(thing, FunctionType)})


def remember_exercise(exercise):
    """And what the exercise says that is judged; functions of its file."""
    JUDGED_BY.clear()  # of another one nothing is kept
    JUDGED_BY.update({(exercise, name): getattr(exercise, name) for name in OF_EXERCISES.split()})
    functions = {name: thing for name, thing in vars(exercise.module).items() if callable(thing)}
    JUDGED_BY.update({(exercise.module, name): thing for name, thing in functions.items()})


def put_back():
    """Those that have been replaced are what they were; their names."""
    replaced = []
    for (place, name), tool in chain(TOOLS.items(), JUDGED_BY.items()):
        if getattr(place, name, None) is not tool and not same(getattr(place, name, None), tool):
            setattr(place, name, tool)
            replaced.append(f"{getattr(place, '__name__', place)}.{name}")
    for function, code in CODES.items():
        if function.__code__ is not code:
            function.__code__ = code
            replaced.append(function.__qualname__)
    return replaced


def same(a, b):
    """Methods of C classes are new objects each time; descriptors are not."""
    return type(a) is type(b) and getattr(a, "__func__", a) == getattr(b, "__func__", b)
