"""Collective algorithms, built from point-to-point messages.

    reference.py       what each collective computes, on plain lists
    star.py            broadcast, reduce, all-reduce: the simplest algorithm
    star_in_chunks.py  all-reduce: the star's bytes in half of its time, as the root sends and receives at once
    direct.py          all-gather, reduce-scatter, all-reduce: the fewest bytes in two steps, each rank with all others
    ring.py            all-gather, reduce-scatter, all-reduce: the fewest bytes, each rank with its neighbors alone
    tree.py            broadcast, reduce, all-reduce: few steps
    halving.py         all-reduce: the fewest bytes, in few steps; the nearest partner first, or the farthest
    doubling.py        all-reduce: the fewest steps
    chain.py           broadcast, in chunks that follow one another
    pairwise.py        all-to-all
    hierarchical.py    all-reduce over nodes: inside them, and across
    multi_ring.py      all-reduce over nodes: several rings, so that all network cards send
    autograd.py        each collective with its conjugate backward
    agreement.py       checks that parameters match on all ranks; broadcasts initial values
    messages.py        send, receive, and sendrecv
    power_of_2.py      adapts power-of-2 algorithms to any number of ranks
    reduction.py       sums, means, products, and so on
    sends.py           bytes and messages sent per rank

The algorithms have the signatures and semantics of torch.distributed's functions of the same name:
``ring.all_reduce(tensor)`` for ``dist.all_reduce(tensor)``. Each has a matching ``..._cost`` function.
"""

from . import (
    autograd,
    chain,
    direct,
    doubling,
    halving,
    hierarchical,
    multi_ring,
    pairwise,
    reference,
    ring,
    star,
    star_in_chunks,
    tree,
)
from .sends import Cost, part_sizes

__all__ = [
    "Cost",
    "autograd",
    "chain",
    "direct",
    "doubling",
    "halving",
    "hierarchical",
    "multi_ring",
    "pairwise",
    "part_sizes",
    "reference",
    "ring",
    "star",
    "star_in_chunks",
    "tree",
]
