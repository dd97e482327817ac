"""Answers that are Triton kernels: they run in Triton's interpreter, on the CPU, and what they load is recorded.

    run_kernel(kernel, 4, q, k, S=60, D=16, loaded=dict(k=k))    starts 4 programs; the record of them

``tl`` is Triton's language; without Triton it has what a kernel's signature needs, so that exercises can be listed and
read. ``unavailable()`` says why a kernel cannot run here, or nothing.

The interpreter works only if it was requested before Triton was imported, and then no kernel is compiled. So it is
requested here where there is no GPU; where there is one, whoever starts Python has to.
"""

import os
import sys
from contextlib import contextmanager
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
    """``loads``: from the tensors that were named. ``stores``: (program, bytes), each. ``undefined``: where NaN begins,
    (program, "exp of NaN", "exp is inf" or "0 / 0"), in order."""

    loads: list
    stores: list
    undefined: list


def run_kernel(answer, programs, *arguments, loaded, **sizes):
    """Run an answer, a function or a jitted one, on a grid of so many programs; the loads from the tensors ``loaded``,
    name -> tensor, are recorded. An error is the answer's own, and not Triton's about it."""
    import triton

    from ..attention.kernels.loads import loads_of

    with loads_of(**loaded) as loads, stores_and_undefined() as others, numpy.errstate(all="ignore"):
        try:
            triton.jit(as_defined(getattr(answer, "fn", answer)))[(programs,)](*arguments, **sizes)
        except triton.runtime.errors.InterpreterError as error:
            raise error.__cause__ or error from None
    return Record(loads, *others)


@contextmanager
def stores_and_undefined():
    """Two lists, which grow with each store, and with each operation that begins to give NaN or inf."""
    from triton.runtime.interpreter import interpreter_builder as builder

    stores, undefined = [], []
    store, divide = builder.create_masked_store, builder.create_fdiv

    def note(kind):
        undefined.append((builder.grid_idx[0], kind))

    def noted_store(pointers, value, mask, *rest):
        stores.append((builder.grid_idx[0], int(mask.data.sum()) * value.data.itemsize))
        return store(pointers, value, mask, *rest)

    def noted_division(a, b):
        if ((a.data == 0) & (b.data == 0)).any():
            note("0 / 0")
        return divide(a, b)

    def noted(exp):
        def noted_exp(x):
            result = exp(x)
            if numpy.isnan(x.data).any():
                note("exp of NaN")
            elif numpy.isinf(result.data).any():
                note("exp is inf")
            return result

        return noted_exp

    noting = dict(create_masked_store=noted_store, create_fdiv=noted_division)
    noting |= {name: noted(getattr(builder, name)) for name in ("create_exp", "create_exp2")}
    for name, function in noting.items():
        setattr(builder, name, function)
    try:
        yield stores, undefined
    finally:
        for name in noting:
            delattr(builder, name)


def as_defined(function):
    """A copy under the name that its source has: Triton looks for that."""
    code = function.__code__
    copy = FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
    copy.__annotations__ = function.__annotations__
    return copy
