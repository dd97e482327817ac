"""What ranks say together, built from messages between two of them.

    reference.py       what each collective means, over plain lists
    star.py            broadcast, reduce, all-reduce: the obvious way
    ring.py            all-gather, reduce-scatter, all-reduce: the fewest bytes
    tree.py            broadcast, reduce, all-reduce: few steps
    halving.py         all-reduce: the fewest bytes, in few steps
    chain.py           broadcast, in chunks that follow one another
    pairwise.py        all-to-all
    hierarchical.py    all-reduce over nodes: inside them, and across
    autograd.py        each collective with its conjugate backward
    agreement.py       the same parameters on all ranks, and the same start
    messages.py        send, receive, and both at once
    reduction.py       sums, means, products, and so on
    cost.py            bytes and messages by rank

The algorithms take what torch.distributed's functions of the same name take, and leave the same behind:
``ring.all_reduce(tensor)`` for ``dist.all_reduce(tensor)``. Each has a ``..._cost`` beside it.
"""

from . import autograd, chain, halving, hierarchical, pairwise, reference, ring, star, tree
from .cost import Cost, part_sizes

__all__ = [
    "Cost",
    "autograd",
    "chain",
    "halving",
    "hierarchical",
    "pairwise",
    "part_sizes",
    "reference",
    "ring",
    "star",
    "tree",
]
