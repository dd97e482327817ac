"""A two-level memory model (HBM and SRAM): attention measured by the bytes that move between them, not by its FLOPs.

    HBM     (an A100's: 40 GB, 1.5 TB/s)                   q, k, v, out; and whatever does not fit
        | load       ^ store
        v            |
    SRAM    (192 kB an SM, 19 TB/s in all)                 tiles; all arithmetic happens here

Three algorithms compute the same result for one head. Elements that they move, for N queries and N keys of head dim d,
with M elements of SRAM:

    naive     scores are stored, loaded; weights are stored, loaded        4 N d + 4 N^2
    flash 1   for each tile of keys, all queries pass                      2 N d + C (3 N d + 4 N)    C = N / (M/4d)
    flash 2   for each tile of queries, all keys pass                      2 N d + N + R 2 N d        R = N / (M/4d)

with C and R rounded up. M makes room for four tiles, of q, k, v and out. Scores and statistics are not counted: with
them flash 1 fits M elements where M >= 8 d^2 + 8 d, and ``HBM`` with a capacity rejects it below.

Both flash orders are O(N^2 d^2 / M), as theorem 2 states of the first. In the first, the output and its two statistics
go back and forth with every tile of keys. In the second they never leave, and different tiles of queries need nothing
of each other, so different processors may have them.

Sources: Dao et al. 2022, FlashAttention, algorithms 0 and 1, theorem 2, figure 1 (the sizes and speeds); Dao 2023,
FlashAttention-2, section 3.1 and algorithm 1. The second paper chooses tiles by trial; here its order gets the rule of
the first, with queries and keys exchanged: the tile that stays is large, the one that passes is small.
"""

import math

import torch

from ..rules import count, must, validate
from .mask import tiles
from .naive import safe_softmax
from .online_softmax import SoftmaxState, finish, merge, nothing, part


@validate(sram_bytes=count)
class HBM:
    """The two-level memory model: counts the bytes that are ``loaded`` from HBM to SRAM and ``stored`` back.

    sram_bytes:  capacity of the SRAM; None: unlimited.
    visited:     (rows, columns) of the tiles of scores that were computed, in order.
    peak:        the most bytes of tiles in SRAM at once, as ``hold`` was told.
    """

    def __init__(self, sram_bytes=None):
        self.sram_bytes = sram_bytes
        self.loaded = self.stored = self.peak = 0
        self.visited = []

    @property
    def moved(self):
        return self.loaded + self.stored

    @validate(tensor=torch.Tensor)
    def load(self, tensor):
        self.loaded += tensor.nbytes
        return tensor.clone()

    @validate(place=torch.Tensor, tensor=torch.Tensor)
    def store(self, place, tensor):
        if place.shape != tensor.shape:
            raise ValueError(f"store: shapes must be equal, got {list(place.shape)} and {list(tensor.shape)}")
        self.stored += tensor.nbytes
        place.copy_(tensor)

    def hold(self, **tiles):
        """Declare that these tensors are in SRAM at once. Raises ``ValueError`` if they do not fit."""
        for name, tile in tiles.items():
            must("hold", name, torch.Tensor, tile)
        nbytes = sum(tile.nbytes for tile in tiles.values())
        if self.sram_bytes is not None and nbytes > self.sram_bytes:
            sizes = [f"{name} {' x '.join(map(str, tile.shape))} ({tile.nbytes:,})" for name, tile in tiles.items()]
            raise ValueError(f"SRAM: {nbytes:,} bytes exceed {self.sram_bytes:,}: {', '.join(sizes)}")
        self.peak = max(self.peak, nbytes)


def tile_sizes(sram_bytes, d, itemsize):
    """Rows of the resident tile and of the streamed tile: ceil(M / 4d), and at most d (algorithm 1, line 1)."""
    if sram_bytes < 4 * d * itemsize:
        raise ValueError(f"SRAM: must hold 4 rows of {d * itemsize} bytes each, got {sram_bytes} bytes")
    stays = math.ceil(sram_bytes / (4 * d * itemsize))
    return stays, min(stays, d)


def naive(memory, q, k, v):
    """Attention of one head, q [T, d], k and v [S, d], with scores and weights in HBM.

    Each of its three steps may pass in tiles of any size, so that no capacity rejects it.
    """
    scores, weights, out = (q.new_empty(len(q), size) for size in (len(k), len(k), v.shape[1]))
    memory.store(scores, memory.load(q) @ memory.load(k).mT / math.sqrt(q.shape[1]))
    memory.store(weights, safe_softmax(memory.load(scores)))
    memory.store(out, memory.load(weights) @ memory.load(v))
    return out


def flash_1(memory, q, k, v, sram_bytes):
    """The same in FlashAttention's loop order: outer loop over keys, inner over queries and partial outputs."""
    stays, passes = tile_sizes(sram_bytes, q.shape[1], q.itemsize)
    known = [each.clone() for each in nothing(q, v.shape[1])]
    for columns in tiles(slice(0, len(k)), stays):
        keys, values = memory.load(k[columns]), memory.load(v[columns])
        for rows in tiles(slice(0, len(q)), passes):
            memory.visited.append((rows, columns))
            queries, maximum, total, out = (memory.load(each[rows]) for each in (q, *known))
            scores = queries @ keys.mT / math.sqrt(q.shape[1])
            state = SoftmaxState(maximum, total, out * total)
            memory.hold(queries=queries, keys=keys, values=values, scores=scores, **state._asdict())
            state = merge(state, part(scores, values))
            for place, each in zip(known, (state.maximum, state.total, finish(state)[0])):
                memory.store(place[rows], each)
    return known[2]


def flash_2(memory, q, k, v, sram_bytes):
    """The same in FlashAttention-2's loop order: outer loop over queries, inner over keys; writes outputs once."""
    stays, passes = tile_sizes(sram_bytes, q.shape[1], q.itemsize)
    out, lse = q.new_empty(len(q), v.shape[1]), q.new_empty(len(q), 1)
    for rows in tiles(slice(0, len(q)), stays):
        queries = memory.load(q[rows])
        state = nothing(queries, v.shape[1])
        for columns in tiles(slice(0, len(k)), passes):
            memory.visited.append((rows, columns))
            keys, values = memory.load(k[columns]), memory.load(v[columns])
            scores = queries @ keys.mT / math.sqrt(q.shape[1])
            memory.hold(queries=queries, keys=keys, values=values, scores=scores, **state._asdict())
            state = merge(state, part(scores, values))
        for place, each in zip((out, lse), finish(state)):
            memory.store(place[rows], each)
    return out
