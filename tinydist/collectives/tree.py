"""Binomial trees: in each step every rank that has the tensor sends it to one that does not.

    step 0    0 -> 1
    step 1    0 -> 2    1 -> 3
    step 2    0 -> 4    1 -> 5    2 -> 6    3 -> 7            places, counted from the root

All n bytes go in each message, p-1 in all; the root sends ceil(lg p) of them.

    broadcast, reduce    ceil(lg p) (alpha + n/beta)
    all_reduce           2 ceil(lg p) (alpha + n/beta)

Source: Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH, 2005.
"""

import torch
from torch.distributed import ProcessGroup, ReduceOp

from ..hardware.costs import tree_steps
from ..rules import amount, listed, validate, whole
from .messages import as_contiguous_1d, check_root, group_root, place, place_of, receive, send
from .reduction import add_up, finish, known
from .sends import Cost


@validate(tensor=torch.Tensor, group=ProcessGroup)
def broadcast(tensor, src=0, group=None):
    """``tensor`` becomes that of rank ``src`` of the world."""
    rank, p = place(group)
    mine, flat = (rank - place_of(src, group)) % p, as_contiguous_1d(tensor, "broadcast")
    for reach in reaches(p):
        if mine < reach and mine + reach < p:
            send(flat, (rank + reach) % p, group)
        elif reach <= mine < 2 * reach:
            receive(flat, (rank - reach) % p, group)


@validate(tensor=torch.Tensor, op=known, group=ProcessGroup)
def reduce(tensor, dst=0, op=ReduceOp.SUM, group=None):
    """On rank ``dst`` of the world ``tensor`` becomes the sum of all ranks' tensors: a broadcast, backwards."""
    rank, p = place(group)
    mine, flat = (rank - place_of(dst, group)) % p, as_contiguous_1d(tensor, "reduce")
    total = flat if mine == 0 else flat.clone()
    for reach in reversed(reaches(p)):
        if mine < reach and mine + reach < p:
            arrived = torch.empty_like(total)
            receive(arrived, (rank + reach) % p, group)
            add_up(total, arrived, op)
        elif reach <= mine < 2 * reach:
            send(total, (rank - reach) % p, group)
    if mine == 0:
        finish(total, op, p)


@validate(tensor=torch.Tensor, op=known, group=ProcessGroup)
def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    """``tensor`` becomes the sum of all ranks' tensors: a reduce to one rank, then a broadcast."""
    root = group_root(group)
    reduce(tensor, root, op, group)
    broadcast(tensor, root, group)


def reaches(p):
    """1, 2, 4 ... below p: how many have the tensor before each step, and how far they send it."""
    return [2**step for step in range((p - 1).bit_length())]


@validate(nbytes=amount, ranks=listed)
def broadcast_cost(nbytes, ranks, root=0) -> Cost:
    """A rank sends once for each child that it has."""
    check_root(root, ranks)
    children = [sum(mine < reach < ranks - mine for reach in reaches(ranks)) for mine in range(ranks)]
    messages = [children[rank - root] for rank in range(ranks)]
    return Cost([nbytes * count for count in messages], messages, tree_steps(nbytes, ranks))


@validate(nbytes=amount, ranks=listed)
def reduce_cost(nbytes, ranks, root=0) -> Cost:
    """Each rank but the root sends once."""
    check_root(root, ranks)
    messages = [int(rank != root) for rank in range(ranks)]
    return Cost([nbytes * count for count in messages], messages, tree_steps(nbytes, ranks))


@validate(num_elements=whole, ranks=listed, itemsize=whole)
def all_reduce_cost(num_elements, ranks, itemsize=4) -> Cost:
    """2(p-1) messages in all, which is what a ring sends too; but some ranks send most of them."""
    nbytes = num_elements * itemsize
    return reduce_cost(nbytes, ranks).then(broadcast_cost(nbytes, ranks))
