"""Slow memory: attention counted by what moves between it and a small fast one, not by its FLOPs.

    slow memory  (an A100's HBM: 40 GB, 1.5 TB/s)          q, k, v, out; and whatever does not fit
        | load       ^ store
        v            |
    fast memory  (its SRAM: 192 kB an SM, 19 TB/s in all)  tiles; all arithmetic happens here

Three programs for one head compute the same. What they move, in numbers, for N queries and N keys of head dim d, with
room for M numbers in fast memory:

    naive     scores are stored, loaded; weights are stored, loaded        4 N d + 4 N^2
    flash 1   for each tile of keys, all queries pass                      2 N d + C (3 N d + 4 N)    C = N / (M/4d)
    flash 2   for each tile of queries, all keys pass                      2 N d + N + R 2 N d        R = N / (M/4d)

with C and R rounded up. M makes room for four tiles, of q, k, v and out; their scores are not counted. Both flash
orders are O(N^2 d^2 / M). In the first, the output and its two statistics go back and forth with every tile of keys. In
the second they never leave, and different tiles of queries need nothing of each other, so different processors may
have them.

Sources: Dao et al. 2022, FlashAttention, algorithms 0 and 1, theorem 2, figure 1 (the sizes and speeds); Dao 2023,
FlashAttention-2, section 3.1 and algorithm 1. The second paper chooses tiles by trial; here its order gets the rule of
the first, with queries and keys exchanged: the tile that stays is large, the one that passes is small.
"""

import math

import torch

from ..rules import takes
from .band import tiles
from .naive import safe_softmax
from .online_softmax import Part, finish, merge, nothing, part


class SlowMemory:
    """Counts the bytes that are ``loaded`` to fast memory and ``stored`` from it.

    visited:  (rows, columns) of the tiles of scores that were computed, in order.
    """

    def __init__(self):
        self.loaded = self.stored = 0
        self.visited = []

    @property
    def moved(self):
        return self.loaded + self.stored

    @takes(tensor=torch.Tensor)
    def load(self, tensor):
        self.loaded += tensor.nbytes
        return tensor.clone()

    @takes(place=torch.Tensor, tensor=torch.Tensor)
    def store(self, place, tensor):
        if place.shape != tensor.shape:
            raise ValueError(f"store: {list(tensor.shape)} does not fit a place of {list(place.shape)}")
        self.stored += tensor.nbytes
        place.copy_(tensor)


def tile_sizes(fast_bytes, d, itemsize):
    """Rows of the tile that stays, and of the one that passes: ceil(M / 4d), and at most d (algorithm 1, line 1)."""
    if fast_bytes < 4 * d * itemsize:
        raise ValueError(f"fast memory: must hold 4 rows, of {d * itemsize} bytes each, got {fast_bytes} bytes")
    stays = math.ceil(fast_bytes / (4 * d * itemsize))
    return stays, min(stays, d)


def naive(memory, q, k, v):
    """Attention of one head, q [T, d], k and v [S, d], with scores and weights in slow memory."""
    scores, weights, out = (q.new_empty(len(q), size) for size in (len(k), len(k), v.shape[1]))
    memory.store(scores, memory.load(q) @ memory.load(k).mT / math.sqrt(q.shape[1]))
    memory.store(weights, safe_softmax(memory.load(scores)))
    memory.store(out, memory.load(weights) @ memory.load(v))
    return out


def flash_1(memory, q, k, v, fast_bytes):
    """The same in FlashAttention's order: tiles of keys stay, queries pass with the output that they have so far."""
    stays, passes = tile_sizes(fast_bytes, q.shape[1], q.itemsize)
    known = [each.clone() for each in nothing(q, v.shape[1])]
    for columns in tiles(slice(0, len(k)), stays):
        keys, values = memory.load(k[columns]), memory.load(v[columns])
        for rows in tiles(slice(0, len(q)), passes):
            memory.visited.append((rows, columns))
            queries, maximum, total, out = (memory.load(each[rows]) for each in (q, *known))
            scores = queries @ keys.mT / math.sqrt(q.shape[1])
            state = merge(Part(maximum, total, out * total), part(scores, values))
            for place, each in zip(known, (state.maximum, state.total, finish(state)[0])):
                memory.store(place[rows], each)
    return known[2]


def flash_2(memory, q, k, v, fast_bytes):
    """The same in FlashAttention-2's order: tiles of queries stay, keys pass. Output and log-sum-exp leave once."""
    stays, passes = tile_sizes(fast_bytes, q.shape[1], q.itemsize)
    out, lse = q.new_empty(len(q), v.shape[1]), q.new_empty(len(q), 1)
    for rows in tiles(slice(0, len(q)), stays):
        queries = memory.load(q[rows])
        state = nothing(queries, v.shape[1])
        for columns in tiles(slice(0, len(k)), passes):
            memory.visited.append((rows, columns))
            keys, values = memory.load(k[columns]), memory.load(v[columns])
            state = merge(state, part(queries @ keys.mT / math.sqrt(q.shape[1]), values))
        for place, each in zip((out, lse), finish(state)):
            memory.store(place[rows], each)
    return out
