"""What ``op`` does to the tensors of several ranks: two become one, again and again."""

import torch
from torch.distributed import ReduceOp

COMBINE = {
    ReduceOp.SUM: torch.add,
    ReduceOp.AVG: torch.add,  # divided once, at the end
    ReduceOp.PRODUCT: torch.mul,
    ReduceOp.MIN: torch.minimum,
    ReduceOp.MAX: torch.maximum,
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}


def add_up(total, arrived, op=ReduceOp.SUM):
    """``total`` takes in ``arrived``, in place."""
    COMBINE[op](total, arrived, out=total)


def finish(total, op, ranks):
    """The tensors of all ranks are in ``total``: a mean is divided now, whole numbers towards zero."""
    if op == ReduceOp.AVG:
        exact = total.is_floating_point() or total.is_complex()
        total.div_(ranks, rounding_mode=None if exact else "trunc")


def combined(tensors, op=ReduceOp.SUM):
    """One new tensor from those of all ranks."""
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        add_up(total, tensor, op)
    finish(total, op, len(tensors))
    return total
