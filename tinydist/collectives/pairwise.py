"""Pairwise all-to-all: in step k, rank r sends to rank r + k and receives from rank r - k.

    step 1    0 -> 1    1 -> 2    2 -> 3    3 -> 0
    step 2    0 -> 2    1 -> 3    2 -> 0    3 -> 1
    step 3    0 -> 3    1 -> 0    2 -> 1    3 -> 2            no rank receives from two at the same time

    all_to_all    (p-1) (alpha + n/(p beta))

n is what a rank has for all. No byte is sent twice, so no algorithm sends less. Parts may differ in size.
Source: Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH, 2005.
"""

import torch
from torch.distributed import ProcessGroup

from ..rules import amount, each_of, validate
from .messages import check_parts, exchange, place
from .sends import Cost


@validate(outputs=each_of(torch.Tensor), inputs=each_of(torch.Tensor), group=ProcessGroup)
def all_to_all(outputs, inputs, group=None):
    """``outputs[r]`` becomes what rank r has for this rank, its ``inputs[this rank]``."""
    rank, p = place(group)
    for parts in (outputs, inputs):
        check_parts("all_to_all", parts, p, rank, inputs[rank] if len(inputs) == p else outputs[rank])
    outputs[rank].copy_(inputs[rank])
    for step in range(1, p):
        to, source = (rank + step) % p, (rank - step) % p
        exchange(inputs[to], to, outputs[source], source, group)


@validate(sizes=each_of(each_of(amount)))
def all_to_all_cost(sizes) -> Cost:
    """``sizes[source][destination]``: bytes. Unequal ones let ranks drift apart: it takes ``steps`` at most."""
    p = len(sizes)
    if any(len(row) != p for row in sizes):
        raise ValueError(
            f"all_to_all: sizes must have {p} rows of length {p}, got lengths {[len(row) for row in sizes]}"
        )
    sent = [sum(row) - row[rank] for rank, row in enumerate(sizes)]
    steps = [(1, max(sizes[rank][(rank + step) % p] for rank in range(p))) for step in range(1, p)]
    return Cost(sent, [p - 1] * p, steps)
