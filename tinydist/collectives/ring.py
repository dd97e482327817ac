"""Ring algorithms: in each step every rank sends one part to its right neighbor and receives one from its left.

    step 0     step 1     step 2            p = 4, reduce-scatter: part 0 starts at rank 1, gathers one more
    1 -> 2     2 -> 3     3 -> 0            rank's elements at each stop, and ends, fully reduced, at rank 0;
                                            parts 1, 2, 3 do the same, one rank further on

Each rank sends n - one part in p-1 messages: (p-1)/p n. As long as the ranks do the adding, no algorithm can send
less; a tree takes fewer steps.

    reduce_scatter, all_gather    (p-1) (alpha + n/(p beta))
    all_reduce                    2(p-1) (alpha + n/(p beta))

n is all that has to be reduced, or is there in the end. Parts may differ in size: then the largest one sets the time.
Source: Patarasuk and Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations, 2009.
"""

import torch
from torch.distributed import ProcessGroup, ReduceOp

from ..hardware.costs import ring_steps
from ..rules import amount, each_of, listed, validate, whole
from .messages import as_contiguous_1d, check_parts, exchange, place
from .reduction import add_up, finish, known
from .sends import Cost, part_sizes


@validate(output=torch.Tensor, parts=each_of(torch.Tensor), op=known, group=ProcessGroup)
def reduce_scatter(output, parts, op=ReduceOp.SUM, group=None):
    """``output`` becomes the sum of all ranks' ``parts[rank]``. One part for each rank; they are left as they are."""
    rank, p = place(group)
    check_parts("reduce_scatter", parts, p, rank, output)
    total = parts[rank - 1]  # this part has the longest way
    for step in range(p - 1):
        mine = parts[(rank - step - 2) % p]
        arrived = torch.empty_like(mine)
        exchange(total, (rank + 1) % p, arrived, (rank - 1) % p, group)
        add_up(arrived, mine, op)
        total = arrived
    output.copy_(total)
    finish(output, op, p)


@validate(parts=each_of(torch.Tensor), tensor=torch.Tensor, group=ProcessGroup)
def all_gather(parts, tensor, group=None):
    """``parts[r]`` becomes rank r's ``tensor``."""
    rank, p = place(group)
    check_parts("all_gather", parts, p, rank, tensor)
    parts[rank].copy_(tensor)
    for step in range(p - 1):
        held, missing = parts[(rank - step) % p], parts[(rank - step - 1) % p]
        exchange(held, (rank + 1) % p, missing, (rank - 1) % p, group)


@validate(tensor=torch.Tensor, op=known, group=ProcessGroup)
def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    """``tensor`` becomes the sum of all ranks' tensors."""
    rank, p = place(group)
    parts = as_contiguous_1d(tensor, "all_reduce").tensor_split(p)
    reduce_scatter(parts[rank], parts, op, group)
    all_gather(parts, parts[rank], group)


@validate(sizes=each_of(amount))
def reduce_scatter_cost(sizes) -> Cost:
    """Of parts of these bytes: rank r sends all but part r."""
    p = len(sizes)
    return Cost([sum(sizes) - size for size in sizes], [p - 1] * p, ring_steps(max(sizes), p))


@validate(sizes=each_of(amount))
def all_gather_cost(sizes) -> Cost:
    """Of parts of these bytes: rank r sends all but its right neighbor's."""
    return reduce_scatter_cost([*sizes[1:], sizes[0]])


@validate(num_elements=whole, ranks=listed, itemsize=whole)
def all_reduce_cost(num_elements, ranks, itemsize=4) -> Cost:
    """Of ``num_elements`` elements of ``itemsize`` bytes: 2(p-1)/p n a rank if they divide evenly."""
    sizes = [itemsize * size for size in part_sizes(num_elements, ranks)]
    return reduce_scatter_cost(sizes).then(all_gather_cost(sizes))
