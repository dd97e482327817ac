"""Answers that are Triton kernels: they run in Triton's interpreter, on the CPU, and what they load is recorded.

    run_kernel(kernel, 4, q, k, S=60, D=16, loaded=dict(k=k))    starts 4 programs; the record of them

``tl`` is Triton's language; without Triton it has what a kernel's signature needs, so that exercises can be listed and
read. ``unavailable()`` says why a kernel cannot run here, or nothing.

The interpreter works only if it was requested before Triton was imported, and then no kernel is compiled. So it is
requested here where there is no GPU; where there is one, whoever starts Python has to.
"""

import os
import sys
from importlib.util import find_spec
from types import FunctionType, SimpleNamespace
from typing import NamedTuple

import numpy
import torch

if "triton" not in sys.modules and not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

INSTALLED = find_spec("triton") is not None
if INSTALLED:
    import triton.language as tl
else:
    tl = SimpleNamespace(constexpr=int)

GUARD = 64  # rows before and after each tensor: reading a little beyond its end is no crash, and is seen


def unavailable():
    if not INSTALLED:
        return (
            "Triton is not installed, so no kernel can run here, and this exercise is skipped. On Linux `make kernels` "
            "installs it; for other systems there is none"
        )
    from ..attention.kernels.tiles import INTERPRETED

    if not INTERPRETED.value:
        return (
            "Triton was imported before its interpreter was requested: set the environment variable TRITON_INTERPRET=1 "
            "first, in the first cell of a notebook (restart its kernel), or before you start Python"
        )
    return ""


def guarded(tensor, fill=float("nan")):
    """A copy, with rows of ``fill`` before it and after it in memory; and these rows."""
    rows, width = tensor.shape
    whole = tensor.new_full((rows + 2 * GUARD, width), fill)
    inside = whole[GUARD : GUARD + rows]
    inside.copy_(tensor)
    return inside, (whole[:GUARD], whole[GUARD + rows :])


class Record(NamedTuple):
    """``loads``: from the tensors that were named. ``stores`` and ``undefined``: as kernels/stores.py notes them."""

    loads: list
    stores: list
    undefined: list


def run_kernel(answer, programs, *arguments, loaded, **sizes):
    """Run an answer, a function or a jitted one, on a grid of so many programs; the loads from the tensors ``loaded``,
    name -> tensor, are recorded. An error is the answer's own, and not Triton's about it."""
    import triton

    from ..attention.kernels.loads import loads_of
    from ..attention.kernels.stores import stores_and_undefined

    with loads_of(**loaded) as loads, stores_and_undefined() as others, numpy.errstate(all="ignore"):
        try:
            triton.jit(as_defined(getattr(answer, "fn", answer)))[(programs,)](*arguments, **sizes)
        except triton.runtime.errors.InterpreterError as error:
            raise error.__cause__ or error from None
    return Record(loads, *others)


def as_defined(function):
    """A copy under the name that its source has: Triton looks for that."""
    code = function.__code__
    copy = FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
    copy.__annotations__ = function.__annotations__
    return copy
