"""Star algorithms: all traffic goes through the root, which sends or receives n bytes p-1 times while others wait.

    root -> 1    root -> 2    root -> 3  ...

    broadcast, reduce    (p-1) (alpha + n/beta)
    all_reduce           2(p-1) (alpha + n/beta)

The simplest algorithms, and the baseline for the others.
"""

import torch
from torch.distributed import ProcessGroup, ReduceOp

from ..hardware.costs import star_steps
from ..rules import amount, listed, validate, whole
from .messages import as_contiguous_1d, check_root, group_root, place, place_of, receive, send
from .reduction import add_up, finish, known
from .sends import Cost


@validate(tensor=torch.Tensor, group=ProcessGroup)
def broadcast(tensor, src=0, group=None):
    """``tensor`` becomes that of rank ``src`` of the world."""
    rank, p = place(group)
    root = place_of(src, group)
    flat = as_contiguous_1d(tensor, "broadcast")
    if rank != root:
        receive(flat, root, group)
        return
    for other in others(p, root):
        send(flat, other, group)


@validate(tensor=torch.Tensor, op=known, group=ProcessGroup)
def reduce(tensor, dst=0, op=ReduceOp.SUM, group=None):
    """On rank ``dst`` of the world ``tensor`` becomes the sum of all ranks' tensors."""
    rank, p = place(group)
    root = place_of(dst, group)
    flat = as_contiguous_1d(tensor, "reduce")
    if rank != root:
        send(flat, root, group)
        return
    arrived = torch.empty_like(flat)
    for other in others(p, root):
        receive(arrived, other, group)
        add_up(flat, arrived, op)
    finish(flat, op, p)


@validate(tensor=torch.Tensor, op=known, group=ProcessGroup)
def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    """``tensor`` becomes the sum of all ranks' tensors."""
    root = group_root(group)
    reduce(tensor, root, op, group)
    broadcast(tensor, root, group)


def others(p, root):
    return [rank for rank in range(p) if rank != root]


@validate(nbytes=amount, ranks=listed)
def broadcast_cost(nbytes, ranks, root=0) -> Cost:
    """The root sends p-1 times."""
    check_root(root, ranks)
    messages = [(ranks - 1) * (rank == root) for rank in range(ranks)]
    return Cost([nbytes * count for count in messages], messages, star_steps(nbytes, ranks))


@validate(nbytes=amount, ranks=listed)
def reduce_cost(nbytes, ranks, root=0) -> Cost:
    """Each rank but the root sends once, one after another."""
    check_root(root, ranks)
    messages = [int(rank != root) for rank in range(ranks)]
    return Cost([nbytes * count for count in messages], messages, star_steps(nbytes, ranks))


@validate(num_elements=whole, ranks=listed, itemsize=whole)
def all_reduce_cost(num_elements, ranks, itemsize=4) -> Cost:
    """2(p-1) n through the root."""
    nbytes = num_elements * itemsize
    return reduce_cost(nbytes, ranks).then(broadcast_cost(nbytes, ranks))
