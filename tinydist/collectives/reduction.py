"""What a reduction does to the tensors of several ranks: two become one, again and again; in the same way when messages
bring them one by one, and on simulated ranks at once."""

import torch
from torch.distributed import ReduceOp

COMBINE = {
    "SUM": torch.add,
    "AVG": torch.add,  # divided once, at the end
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def known(op):
    """one of ReduceOp.SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR"""
    return isinstance(op, ReduceOp.RedOpType) and op.name in COMBINE


def add_up(total, arrived, op=ReduceOp.SUM):
    """``total`` takes in ``arrived``, in place."""
    COMBINE[op.name](total, arrived, out=total)


def finish(total, op, ranks):
    """The tensors of all ranks are in ``total``: a mean is divided now."""
    averaged(total, op.name, ranks)


def combined(tensors, op=ReduceOp.SUM):
    """One new tensor from those of all ranks."""
    return reduced(tensors, op.name)


# By the name of the operation, a key of COMBINE.


def averaged(total, reduction, ranks):
    """A mean is divided, whole numbers towards zero; all else is what it is."""
    if reduction == "AVG":
        # As torch does; a complex number divided by a complex one is rounded more than once
        for part in (total.real, total.imag) if total.is_complex() else (total,):
            part.div_(ranks, rounding_mode=None if part.is_floating_point() else "trunc")
    return total


def reduced(tensors, reduction):
    """One new tensor from those of all ranks, summed up in their order."""
    combine = COMBINE[reduction]
    first, *rest = tensors
    total = combine(first, rest[0]) if rest else first.clone()
    for tensor in rest[1:]:
        combine(total, tensor, out=total)
    return averaged(total, reduction, len(tensors))
