"""Recursive halving and doubling (Rabenseifner): the bytes of a ring in the number of steps of a tree.

    distance 1:  partners 0-1, 2-3, 4-5, 6-7 exchange halves: each keeps one, now summed over two ranks
    distance 2:  partners 0-2, 1-3, 4-6, 5-7 exchange halves of that
    distance 4:  partners 0-4, 1-5, 2-6, 3-7: each rank now holds 1/8, summed over all
    and back:    4, 2, 1: partners exchange what they have, and each time each has twice as much

    all_reduce    2 lg p alpha + 2 (p-1)/p n/beta, if p is a power of 2

The first exchange is the largest, so ``first`` says with whom it is: the nearest, as in MPICH, or the farthest. Where
all links are alike both cost the same. Where nodes hold several ranks, the largest pieces stay inside a node if the
nearest come first, and leave it if the farthest do.

Halves differ by an element where a piece is odd; the larger one sets the time. Ranks beyond the largest power of 2 pay
2 (alpha + n/beta) more.
Source: Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH, 2005; the order:
MPICH, src/mpi/coll/allreduce/allreduce_intra_reduce_scatter_allgather.c.
"""

from functools import partial

import torch
from torch.distributed import ProcessGroup, ReduceOp

from ..hardware.costs import halving_doubling_steps, partners
from ..rules import listed, validate, whole
from .messages import as_contiguous_1d, exchange, place
from .power_of_2 import beyond_as_well, distances, on_a_power_of_2, power_of_2
from .reduction import add_up, finish, known
from .sends import Cost, part_sizes


@validate(tensor=torch.Tensor, op=known, group=ProcessGroup, first=partners)
def all_reduce(tensor, op=ReduceOp.SUM, group=None, first="nearest"):
    """``tensor`` becomes the sum of all ranks' tensors. The ``first`` exchange is with the nearest or the farthest."""
    flat = as_contiguous_1d(tensor, "all_reduce")
    on_a_power_of_2(flat, op, group, partial(halve_and_double, flat, op, group, first))


def halve_and_double(flat, op, group, first):
    rank, p = place(group)
    exchanges, piece = halve(flat, op, rank, in_order(power_of_2(p), first), group)
    finish(piece, op, p)
    double(exchanges, group)


def halve(flat, op, rank, order, group):
    """The exchanges made, as (partner, half kept, half given away), and the last half: summed over all."""
    exchanges = []
    for distance in order:
        partner, upper = rank ^ distance, bool(rank & distance)
        halves = flat.tensor_split(2)
        kept, given = halves[upper], halves[not upper]
        arrived = torch.empty_like(kept)
        exchange(given, partner, arrived, partner, group)
        add_up(kept, arrived, op)
        exchanges.append((partner, kept, given))
        flat = kept
    return exchanges, flat


def double(exchanges, group):
    """The same exchanges, the last one first: what was given away comes back as a sum."""
    for partner, kept, given in reversed(exchanges):
        exchange(kept, partner, given, partner, group)


def in_order(power, first):
    """The distances to the partners."""
    return distances(power) if first == "nearest" else distances(power)[::-1]


@validate(num_elements=whole, ranks=listed, itemsize=whole, first=partners)
def all_reduce_cost(num_elements, ranks, itemsize=4, first="nearest") -> Cost:
    """Ranks with a partner beyond the power of 2 send n more, and those beyond it n alone."""
    power = power_of_2(ranks)
    exchanges = [halves_of(num_elements, rank, in_order(power, first)) for rank in range(power)]
    sent = [itemsize * sum(kept + given for kept, given in each) for each in exchanges]
    messages = [2 * len(each) for each in exchanges]
    steps = halving_doubling_steps(ranks, lambda step: itemsize * -(-num_elements // 2**step))
    return Cost(*beyond_as_well(sent, messages, num_elements * itemsize, ranks), steps)


def halves_of(num_elements, rank, order):
    """(elements kept, elements given away) in each exchange."""
    halves = []
    for distance in order:
        sizes, upper = part_sizes(num_elements, 2), bool(rank & distance)
        halves.append((sizes[upper], sizes[not upper]))
        num_elements = sizes[upper]
    return halves
