"""Random numbers whose last bits differ, as results of two processors do: what a notebook prints must survive that.

Importing this module changes PyTorch: of the random numbers that it draws a third become larger and a third smaller by
8 times the machine epsilon of their dtype, wherever weights and data are made. Sums of other processors differ by about
one epsilon, so a digit that survives this seldom differs there. What compares one run with another still finds equal
bits, since all ranks, threads and processes draw the same numbers.
"""

import ctypes
from functools import wraps

import numpy
import torch

ULPS = 8
NUMBERS = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}


def shift_last_bits(drawn):
    if drawn.dtype in NUMBERS and type(drawn) in (torch.Tensor, torch.nn.Parameter) and drawn.device.type == "cpu":
        # Past torch, and what observes its operators; a view of NumPy's could not be resized any more
        numbers = numpy.ctypeslib.as_array((NUMBERS[drawn.dtype] * drawn.numel()).from_address(drawn.data_ptr()))
        direction = (numpy.arange(numbers.size) % 3 - 1).astype(numbers.dtype)
        numbers *= 1 + direction * (ULPS * numpy.finfo(numbers.dtype).eps)
    return drawn


def with_other_last_bits(draw):
    @wraps(draw)
    def drawn(*arguments, **options):
        return shift_last_bits(draw(*arguments, **options))

    return drawn


for owner, name in ((torch, "randn"), (torch, "rand"), (torch.Tensor, "normal_"), (torch.Tensor, "uniform_")):
    setattr(owner, name, with_other_last_bits(getattr(owner, name)))
