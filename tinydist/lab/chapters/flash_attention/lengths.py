"""All tiles of causal attention, for several lengths: as it should be and as mistakes make it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from ...alone import copied, input_of
from .rows import row
from .tile_costs import Tiled

D, E = 4, 3


@dataclass(frozen=True)
class Lengths:
    about: str
    queries: int
    keys: int
    tile: int
    size: float = 1.0
    change: Callable = lambda q, k, v: None  # of what is given
    unlike: str = ""  # said where nothing else explains what came
    rtol: float = 1e-4

    @property
    def work(self):
        """Of a right answer."""
        sizes = [min(self.tile, self.queries - first) for first in range(0, self.queries, self.tile)]
        lasts = [min(first + self.tile, self.queries) for first in range(0, self.queries, self.tile)]
        tiles = [math.ceil(max(0, last + self.keys - self.queries) / self.tile) for last in lasts]
        visited = sum(size * min(self.keys, count * self.tile) for size, count in zip(sizes, tiles))
        seen = sum(max(0, i + 1 + self.keys - self.queries) for i in range(self.queries))
        return Tiled(seen, visited, sum(tiles), self.tile, D + E, products=2)

    def tensors(self):
        generator = torch.Generator().manual_seed(3)
        shapes = (self.queries, D), (self.keys, D), (self.keys, E)
        q, k, v = (torch.randn(shape, generator=generator) for shape in shapes)
        q *= 2 * self.size
        self.change(q, k, v)
        return q, k, v

    def input(self):
        given = self.tensors()
        about = f"{self.queries} queries, {self.keys} keys, tiles of {self.tile} ({self.about})"
        return input_of(partial(copied, (*given, self.tile)), about, (self, naive(*given)))


def low(q, k, v):
    """All scores are near -2048, and exact in float32; a log-sum-exp is to 1e-4."""
    for each in (q, k):
        each.copy_((4 * each).round() / 4)
    q[:, 0], k[:, 0] = -64, 64


def spoiled(q, k, v):
    """The last query alone sees it."""
    v[-1] = math.nan


LOW = (
    "Here exp underflowed: less than -104 gives 0. The number subtracted must be the maximum of the scores itself, "
    "wherever that is finite"
)
CASES = (
    Lengths("one tile", 4, 4, 4),
    Lengths("three tiles by three", 12, 12, 4),
    Lengths("large scores", 8, 8, 4, size=100.0),
    Lengths("low scores, near -2048", 8, 8, 4, change=low, unlike=LOW, rtol=1e-3),
    Lengths("more keys", 8, 16, 4),
    Lengths("the diagonal leaves by a tile's corner", 4, 9, 4),
    Lengths("tiles of one", 3, 3, 1),
    Lengths("more queries, of which some see nothing", 8, 6, 4),
    Lengths("more queries, of which two tiles see nothing", 12, 2, 4),
    Lengths("short last tiles", 10, 10, 4),
    Lengths("short last tiles, other lengths", 5, 11, 3),
    Lengths("a tile longer than all", 3, 3, 8),
    Lengths("NaN in the last value", 12, 12, 4, change=spoiled),
    Lengths("many keys", 8, 160, 8),
)


def naive(q, k, v, window=0, scale=None):
    """In float64. ``window``: keys beyond a query's own position that it sees, or does not."""
    q, k, v = q.double(), k.double(), v.double()
    p = torch.arange(len(q))[:, None] + len(k) - len(q)
    scores = q @ k.T * (1 / math.sqrt(q.shape[1]) if scale is None else scale)
    scores = scores.masked_fill(torch.arange(len(k)) > p + window, -math.inf)
    return (scores.softmax(1).nan_to_num() @ v).float()


def mistaken(q, k, v, tile):
    """words -> what it gives."""
    return {
        "The rescaling is forgotten: when a tile brings a larger maximum, what was added up before counts from the old "
        "one. Total and output, both, are multiplied by exp(old - new)": tiled(q, k, v, tile, output=False),
        "total is not rescaled: when a tile brings a larger maximum, it counts from the old one": tiled(
            q, k, v, tile, total=False
        ),
        "Neither total nor output is rescaled: when a tile brings a larger maximum, they count from the old one": tiled(
            q, k, v, tile, total=False, output=False
        ),
        "A tile of keys is left out: one whose first key stands where the last query of the tile stands is seen by "
        "that query": tiled(q, k, v, tile, short=1),
        "The scores are divided by sqrt(d) twice: the queries are divided already": naive(
            q, k, v, scale=1 / q.shape[1]
        ),
        "The scores are not divided by sqrt(d)": naive(q, k, v, scale=1.0),
        "The mask is off by one: a query sees the key after itself": naive(q, k, v, 1),
        "The mask is off by one: a query does not see itself": naive(q, k, v, -1),
        "No key is masked": naive(q, k, v, len(q)),
    }


def tiled(q, k, v, tile, short=0, **mistakes):
    """Row by row of tiles, of which the last ``short`` positions are not visited."""
    offset = len(k) - len(q)
    parts = []
    for first in range(0, len(q), tile):
        queries, start = q[first : first + tile], first + offset
        seen = min(len(k), start + len(queries)) - short
        parts.append(row(queries, k, v, start, tile, until=max(0, seen), **mistakes)[0])
    return torch.cat(parts)
