"""Context parallelism: one sequence over several ranks; each computes its own tokens, with the keys of all.

    layout.py    which tokens a rank has: contiguous parts, or zig-zag, which balances a causal mask
    block.py     attention of some queries to one block of keys, and how the results of blocks merge
    ring.py      ring attention: keys and values go round while the ranks compute
    gather.py    all keys and values are gathered first
    ulysses.py   an all-to-all trades tokens for heads; within a node, with a ring across nodes
    shard.py     a whole model on a part of the sequence, applied from outside

In reading order. Elements that a rank sends forward, N tokens of width h, g of a heads as KV heads, p ranks:

    ring, gather    2 N h (g/a) (p-1)/p                     grows with N alone: the same on any number of ranks
    Ulysses         (2 + 2 g/a) N h (p-1)/p^2               shrinks with p, which must divide the heads
"""

from .gather import gather_attention
from .layout import positions, shard_sequence, unshard_sequence
from .ring import ring_attention
from .shard import shard_attention
from .ulysses import hybrid_attention, ulysses_attention

__all__ = [
    "gather_attention",
    "hybrid_attention",
    "positions",
    "ring_attention",
    "shard_attention",
    "shard_sequence",
    "ulysses_attention",
    "unshard_sequence",
]
