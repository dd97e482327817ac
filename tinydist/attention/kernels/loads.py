"""Record the tiles that a kernel loads, under Triton's interpreter, which calls a Python function for each load."""

from contextlib import contextmanager
from typing import Any, NamedTuple

from triton.runtime.interpreter import interpreter_builder


class Load(NamedTuple):
    program: tuple  # on each axis of the grid
    name: str
    rows: Any  # a slice of the tensor's last dim but one, over all that stands before it
    nbytes: int  # without what the mask hides


@contextmanager
def loads_of(**tensors):
    """A list that grows by a ``Load`` each time that a kernel loads from one of these contiguous tensors [..., n, d].

    with loads_of(q=q, k=k) as loads: kernel[grid](q, k, ...)
    """
    seen, load = [], interpreter_builder.create_masked_load

    def seen_load(pointers, mask, *rest):
        places = pointers.data[mask.data].tolist()  # addresses
        for name, tensor in tensors.items():
            row, begin = tensor.shape[-1] * tensor.itemsize, tensor.data_ptr()
            if places and begin <= places[0] < begin + tensor.nbytes:
                rows = slice((min(places) - begin) // row, (max(places) - begin) // row + 1)
                seen.append(Load(interpreter_builder.grid_idx, name, rows, len(places) * tensor.itemsize))
        return load(pointers, mask, *rest)

    with in_place_of(create_masked_load=seen_load):
        yield seen


@contextmanager
def in_place_of(**functions):
    """Context: the interpreter calls these, and not its own of the same names."""
    for name, function in functions.items():
        setattr(interpreter_builder, name, function)
    try:
        yield
    finally:
        for name in functions:
            delattr(interpreter_builder, name)
