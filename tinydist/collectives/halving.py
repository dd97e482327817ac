"""Recursive halving and doubling: a ring's bytes in a tree's steps.

    distance 4:  partners 0-4, 1-5, 2-6, 3-7 exchange halves: each keeps one, now summed over two ranks
    distance 2:  partners 0-2, 1-3, 4-6, 5-7 exchange halves of that
    distance 1:  partners 0-1, 2-3, 4-5, 6-7: each rank now holds 1/8, summed over all
    and back:    1, 2, 4: partners exchange what they have, and each time each has twice as much

    all_reduce    2 lg p alpha + 2 (p-1)/p n/beta, if p is a power of 2

Else the ranks beyond the largest power of 2 hand their tensors to partners before, and get the sum after: 2 (alpha +
n/beta) more. Halves differ by a number where a piece is odd; the larger one sets the time.
Source: Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH, 2005.
"""

import torch
from torch.distributed import ProcessGroup, ReduceOp

from ..hardware.costs import halving_doubling_steps
from ..rules import listed, takes, whole
from .cost import Cost, part_sizes
from .messages import exchange, flat, place, receive, send
from .reduction import add_up, finish, known


@takes(tensor=torch.Tensor, op=known, group=ProcessGroup)
def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    """``tensor`` becomes the sum of all ranks' tensors."""
    rank, p = place(group)
    numbers, power = flat(tensor, "all_reduce"), power_of_2(p)
    if rank >= power:
        send(numbers, rank - power, group)
        receive(numbers, rank - power, group)
        return
    if rank + power < p:
        arrived = torch.empty_like(numbers)
        receive(arrived, rank + power, group)
        add_up(numbers, arrived, op)
    exchanges, piece = halve(numbers, op, rank, power, group)
    finish(piece, op, p)
    double(exchanges, group)
    if rank + power < p:
        send(numbers, rank + power, group)


def halve(numbers, op, rank, power, group):
    """The exchanges made, as (partner, half kept, half given away), and the last half: summed over all."""
    exchanges = []
    for distance in distances(power):
        partner, upper = rank ^ distance, bool(rank & distance)
        halves = numbers.tensor_split(2)
        kept, given = halves[upper], halves[not upper]
        arrived = torch.empty_like(kept)
        exchange(given, partner, arrived, partner, group)
        add_up(kept, arrived, op)
        exchanges.append((partner, kept, given))
        numbers = kept
    return exchanges, numbers


def double(exchanges, group):
    """The same exchanges, the last one first: what was given away comes back as a sum."""
    for partner, kept, given in reversed(exchanges):
        exchange(kept, partner, given, partner, group)


def power_of_2(p):
    """The largest that is no more than p."""
    return 2 ** (p.bit_length() - 1)


def distances(power):
    """power/2, ..., 2, 1."""
    return [power >> step for step in range(1, power.bit_length())]


@takes(count=whole, ranks=listed, itemsize=whole)
def all_reduce_cost(count, ranks, itemsize=4) -> Cost:
    """Ranks with a partner beyond the power of 2 send n more, and those beyond it n alone."""
    power = power_of_2(ranks)
    exchanges = [halves_of(count, rank, power) for rank in range(power)]
    sent = [itemsize * sum(kept + given for kept, given in each) for each in exchanges]
    messages = [2 * len(each) for each in exchanges]
    for rank in range(ranks - power):
        sent[rank] += itemsize * count
        messages[rank] += 1
        sent.append(itemsize * count)
        messages.append(1)
    return Cost(sent, messages, halving_doubling_steps(ranks, lambda step: itemsize * -(-count // 2**step)))


def halves_of(count, rank, power):
    """(numbers kept, numbers given away) in each exchange."""
    halves = []
    for distance in distances(power):
        sizes, upper = part_sizes(count, 2), bool(rank & distance)
        halves.append((sizes[upper], sizes[not upper]))
        count = sizes[upper]
    return halves
