"""Reduction operators (``op``): combine the tensors of several ranks pairwise, with the results of the simulator."""

from torch.distributed import ReduceOp

from .. import reduce


def known(op):
    """one of ReduceOp.SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR"""
    return isinstance(op, ReduceOp.RedOpType) and op.name in reduce.COMBINE


def add_up(total, arrived, op=ReduceOp.SUM):
    """``total`` takes in ``arrived``, in place."""
    reduce.COMBINE[op.name](total, arrived, out=total)


def finish(total, op, ranks):
    """The tensors of all ranks are in ``total``: a mean is divided now."""
    reduce.finish(total, op.name, ranks)


def combined(tensors, op=ReduceOp.SUM):
    """One new tensor from those of all ranks."""
    return reduce.reduced(tensors, op.name)
