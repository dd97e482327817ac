"""Adapts algorithms that need a power of 2 of ranks to any number of ranks.

    p = 6:    4 -> 0, 5 -> 1      ranks beyond the largest power of 2 hand their tensors to partners
              0, 1, 2, 3          the algorithm
              0 -> 4, 1 -> 5      and get the result

That is 2 (alpha + n/beta) more. Source: Thakur, Rabenseifner, Gropp, Optimization of Collective Communication
Operations in MPICH, 2005.
"""

import torch

from .messages import place, receive, send
from .reduction import add_up


def on_a_power_of_2(flat, op, group, algorithm):
    """``algorithm()`` reduces ``flat``, on the first ranks alone."""
    rank, p = place(group)
    power = power_of_2(p)
    if rank >= power:
        send(flat, rank - power, group)
        receive(flat, rank - power, group)
        return
    if rank + power < p:
        arrived = torch.empty_like(flat)
        receive(arrived, rank + power, group)
        add_up(flat, arrived, op)
    algorithm()
    if rank + power < p:
        send(flat, rank + power, group)


def power_of_2(p):
    """The largest that is no more than p."""
    return 2 ** (p.bit_length() - 1)


def distances(power):
    """1, 2, 4 ... below it: the partner at distance d of rank r is r ^ d, r with one bit flipped."""
    return [1 << bit for bit in range(power.bit_length() - 1)]


def beyond_as_well(sent, messages, nbytes, ranks):
    """What all ranks send, given what those of the power of 2 send."""
    power = power_of_2(ranks)
    beyond = ranks - power
    sent = [n + nbytes * (rank < beyond) for rank, n in enumerate(sent)] + [nbytes] * beyond
    messages = [n + (rank < beyond) for rank, n in enumerate(messages)] + [1] * beyond
    return sent, messages
