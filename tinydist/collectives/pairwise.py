"""Pairwise all-to-all: in step k each rank sends to the one k further, and receives from the one k before.

    step 1    0 -> 1    1 -> 2    2 -> 3    3 -> 0
    step 2    0 -> 2    1 -> 3    2 -> 0    3 -> 1
    step 3    0 -> 3    1 -> 0    2 -> 1    3 -> 2            nobody ever receives from two at once

    all_to_all    (p-1) (alpha + n/(p beta))

n is what a rank has for all. No byte is sent twice, so no algorithm sends less. Parts may differ in size.
Source: Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH, 2005.
"""

import torch
from torch.distributed import ProcessGroup

from ..rules import amount, each_of, takes
from .messages import check_parts, exchange, place
from .sends import Cost


@takes(outputs=each_of(torch.Tensor), inputs=each_of(torch.Tensor), group=ProcessGroup)
def all_to_all(outputs, inputs, group=None):
    """``outputs[r]`` becomes what rank r has for this rank, its ``inputs[this rank]``."""
    rank, p = place(group)
    for parts in (outputs, inputs):
        check_parts("all_to_all", parts, p, rank, inputs[rank] if len(inputs) == p else outputs[rank])
    outputs[rank].copy_(inputs[rank])
    for step in range(1, p):
        to, source = (rank + step) % p, (rank - step) % p
        exchange(inputs[to], to, outputs[source], source, group)


@takes(sizes=each_of(each_of(amount)))
def all_to_all_cost(sizes) -> Cost:
    """``sizes[source][destination]``: bytes. Unequal ones let ranks drift apart: it takes ``steps`` at most."""
    p = len(sizes)
    if any(len(row) != p for row in sizes):
        raise ValueError(
            f"all_to_all: {p} ranks send to as many, got rows of {', '.join(str(len(row)) for row in sizes)}"
        )
    sent = [sum(row) - row[rank] for rank, row in enumerate(sizes)]
    steps = [(1, max(sizes[rank][(rank + step) % p] for rank in range(p))) for step in range(1, p)]
    return Cost(sent, [p - 1] * p, steps)
