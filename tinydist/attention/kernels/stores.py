"""Record what a kernel stores, and where its numbers become NaN or inf, under Triton's interpreter."""

from contextlib import contextmanager

import numpy
from triton.runtime.interpreter import interpreter_builder as builder

from .loads import in_place_of


@contextmanager
def stores_and_undefined():
    """Two lists, which grow with each store, (program, bytes), and with each operation that begins to give NaN or inf:
    (program, "exp of NaN", "exp is inf" or "0 / 0")."""
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

    exps = {name: noted(getattr(builder, name)) for name in ("create_exp", "create_exp2")}
    with in_place_of(create_masked_store=noted_store, create_fdiv=noted_division, **exps):
        yield stores, undefined
