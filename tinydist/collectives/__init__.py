"""What ranks say together, built from messages between two of them.

    reference.py       what each collective means, over plain lists
    star.py            broadcast, reduce, all-reduce: the obvious way
    ring.py            all-gather, reduce-scatter, all-reduce: the fewest bytes
    tree.py            broadcast, reduce, all-reduce: few steps
    halving.py         all-reduce: the fewest bytes, in few steps; the nearest partner first, or the farthest
    doubling.py        all-reduce: the fewest steps
    chain.py           broadcast, in chunks that follow one another
    pairwise.py        all-to-all
    hierarchical.py    all-reduce over nodes: inside them, and across
    multi_ring.py      all-reduce over nodes: several rings, so that all network cards send
    autograd.py        each collective with its conjugate backward
    agreement.py       the same parameters on all ranks, and the same start
    messages.py        send, receive, and both at once
    power_of_2.py      any number of ranks, for algorithms that pair them
    reduction.py       sums, means, products, and so on
    sends.py           what each rank sends: bytes and messages

The algorithms take what torch.distributed's functions of the same name take, and leave the same behind:
``ring.all_reduce(tensor)`` for ``dist.all_reduce(tensor)``. Each has a ``..._cost`` beside it.
"""

from . import autograd, chain, doubling, halving, hierarchical, multi_ring, pairwise, reference, ring, star, tree
from .sends import Cost, part_sizes

__all__ = [
    "Cost",
    "autograd",
    "chain",
    "doubling",
    "halving",
    "hierarchical",
    "multi_ring",
    "pairwise",
    "part_sizes",
    "reference",
    "ring",
    "star",
    "tree",
]
