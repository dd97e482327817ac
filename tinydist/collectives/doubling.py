"""Recursive doubling: in each step partners exchange their partial sums, at distances 1, 2, 4 ...

    distance 1:  partners 0-1, 2-3, 4-5, 6-7 exchange their tensors: each holds the sum of two
    distance 2:  partners 0-2, 1-3, 4-6, 5-7: the sum of four
    distance 4:  partners 0-4, 1-5, 2-6, 3-7: the sum of all eight

    all_reduce    lg p (alpha + n/beta), if p is a power of 2

The fewest steps that there are: a tree needs twice as many, to the root and back. But each sends all n, so it suits
small tensors, for which MPICH takes it. Ranks beyond the largest power of 2 pay 2 (alpha + n/beta) more.
Source: Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH, 2005.
"""

from functools import partial

import torch
from torch.distributed import ProcessGroup, ReduceOp

from ..hardware.costs import recursive_doubling_steps
from ..rules import listed, validate, whole
from .messages import as_contiguous_1d, exchange, place
from .power_of_2 import beyond_as_well, distances, on_a_power_of_2, power_of_2
from .reduction import add_up, finish, known
from .sends import Cost


@validate(tensor=torch.Tensor, op=known, group=ProcessGroup)
def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    """``tensor`` becomes the sum of all ranks' tensors."""
    flat = as_contiguous_1d(tensor, "all_reduce")
    on_a_power_of_2(flat, op, group, partial(exchange_all, flat, op, group))


def exchange_all(flat, op, group):
    rank, p = place(group)
    for distance in distances(power_of_2(p)):
        arrived = torch.empty_like(flat)
        exchange(flat, rank ^ distance, arrived, rank ^ distance, group)
        add_up(flat, arrived, op)
    finish(flat, op, p)


@validate(num_elements=whole, ranks=listed, itemsize=whole)
def all_reduce_cost(num_elements, ranks, itemsize=4) -> Cost:
    """lg p n per rank. Ranks with a partner beyond the power of 2 send n more, and those beyond it n alone."""
    power, nbytes = power_of_2(ranks), num_elements * itemsize
    exchanges = len(distances(power))
    sent, messages = [exchanges * nbytes] * power, [exchanges] * power
    return Cost(*beyond_as_well(sent, messages, nbytes, ranks), recursive_doubling_steps(nbytes, ranks))
