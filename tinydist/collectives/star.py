"""Stars: everything passes one rank, the root, which sends or receives n bytes p-1 times while the others wait.

    root -> 1    root -> 2    root -> 3  ...

    broadcast, reduce    (p-1) (alpha + n/beta)
    all_reduce           2(p-1) (alpha + n/beta)

The obvious way, and what the other algorithms are measured against.
"""

import torch
from torch.distributed import ProcessGroup, ReduceOp

from ..hardware.costs import star_steps
from ..rules import amount, listed, takes, whole
from .messages import check_root, flat, group_root, place, place_of, receive, send
from .reduction import add_up, finish, known
from .sends import Cost


@takes(tensor=torch.Tensor, group=ProcessGroup)
def broadcast(tensor, src=0, group=None):
    """``tensor`` becomes that of rank ``src`` of the world."""
    (rank, p), root = place(group), place_of(src, group)
    numbers = flat(tensor, "broadcast")
    if rank != root:
        receive(numbers, root, group)
    for other in others(p, root) if rank == root else ():
        send(numbers, other, group)


@takes(tensor=torch.Tensor, op=known, group=ProcessGroup)
def reduce(tensor, dst=0, op=ReduceOp.SUM, group=None):
    """On rank ``dst`` of the world ``tensor`` becomes the sum of all ranks' tensors."""
    (rank, p), root = place(group), place_of(dst, group)
    numbers = flat(tensor, "reduce")
    if rank != root:
        send(numbers, root, group)
        return
    arrived = torch.empty_like(numbers)
    for other in others(p, root):
        receive(arrived, other, group)
        add_up(numbers, arrived, op)
    finish(numbers, op, p)


@takes(tensor=torch.Tensor, op=known, group=ProcessGroup)
def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    """``tensor`` becomes the sum of all ranks' tensors."""
    root = group_root(group)
    reduce(tensor, root, op, group)
    broadcast(tensor, root, group)


def others(p, root):
    return [rank for rank in range(p) if rank != root]


@takes(nbytes=amount, ranks=listed)
def broadcast_cost(nbytes, ranks, root=0) -> Cost:
    """The root sends p-1 times."""
    check_root(root, ranks)
    messages = [(ranks - 1) * (rank == root) for rank in range(ranks)]
    return Cost([nbytes * count for count in messages], messages, star_steps(nbytes, ranks))


@takes(nbytes=amount, ranks=listed)
def reduce_cost(nbytes, ranks, root=0) -> Cost:
    """Each rank but the root sends once, and has to wait for its turn."""
    check_root(root, ranks)
    messages = [int(rank != root) for rank in range(ranks)]
    return Cost([nbytes * count for count in messages], messages, star_steps(nbytes, ranks))


@takes(count=whole, ranks=listed, itemsize=whole)
def all_reduce_cost(count, ranks, itemsize=4) -> Cost:
    """2(p-1) n through the root."""
    nbytes = count * itemsize
    return reduce_cost(nbytes, ranks).then(broadcast_cost(nbytes, ranks))
