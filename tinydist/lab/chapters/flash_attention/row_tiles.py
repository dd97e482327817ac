"""The rows of tiles that a forward pass is tried on: their sizes, and what is strange about them."""

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
class Tiles:
    about: str
    queries: int
    start: int
    keys: int
    tile: int
    size: float = 1.0
    change: Callable = lambda q, k, v, tiles: None  # of what is given
    unlike: str = ""  # said where nothing else explains what came
    rtol: float = 1e-4

    @property
    def visible(self):
        """The first key that no query of the row needs to have in a tile."""
        seen = min(self.keys, self.start + self.queries)
        return min(self.keys, math.ceil(seen / self.tile) * self.tile)

    @property
    def work(self):
        """Of a right answer."""
        seen = sum(min(self.keys, self.start + i + 1) for i in range(self.queries))
        count = math.ceil(self.visible / self.tile)
        return Tiled(seen, self.queries * self.visible, count, self.tile, D + E, products=2)

    def input(self):
        generator = torch.Generator().manual_seed(1)
        q, k, v = (
            torch.randn(n, width, generator=generator)
            for n, width in ((self.queries, D), (self.keys, D), (self.keys, E))
        )
        q *= 2 * self.size
        self.change(q, k, v, self)
        expected = row(q, k.nan_to_num(), v, self.start, self.tile)
        queries = f"{self.queries} queries from position {self.start}, {self.keys} keys, tiles of {self.tile} keys"
        given = q, k, v, self.start, self.tile
        return input_of(partial(copied, given), f"{queries} ({self.about})", (self, *expected))


def low(q, k, v, tiles):
    """All scores are near -2048, and exact in float32; the log-sum-exp is to 1e-4."""
    for each in (q, k):
        each.copy_((4 * each).round() / 4)
    q[:, 0], k[:, 0] = -64, 64


def loud(q, k, v, tiles):
    """For the first query, the key after its own has a score of 400."""
    q[:, 0], k[tiles.start + 1, 0] = 0, 100
    q[0, 0] = 8


def poisoned(q, k, v, tiles):
    """NaN where nothing need be read."""
    k[tiles.visible :] = v[tiles.visible :] = math.nan


def spoiled(q, k, v, tiles):
    v[0, 0] = math.nan


LOW = (
    "Here exp underflowed: less than -104 gives 0. The number subtracted must be the maximum of the scores itself, "
    "wherever that is finite"
)
LOUD = "Mask the scores before the maximum: a hidden key has decided the unit, or inf times 0 has given NaN"
CASES = (
    Tiles("one tile", 4, 0, 4, 4),
    Tiles("below the diagonal and on it", 4, 8, 12, 4),
    Tiles("the last query at the start of a tile", 3, 6, 12, 4),
    Tiles("more queries than keys of a tile", 7, 5, 12, 3),
    Tiles("fewer queries than keys of a tile", 2, 5, 15, 5),
    Tiles("a short last tile", 2, 13, 15, 4),
    Tiles("one query, tiles of one key", 1, 3, 4, 1),
    Tiles("a tile longer than the keys", 3, 0, 3, 8),
    Tiles("large scores", 1, 11, 12, 4, size=100.0),
    Tiles("low scores, near -2048", 4, 8, 12, 4, change=low, unlike=LOW, rtol=1e-3),
    Tiles("a hidden key with a score of 400", 4, 4, 8, 4, change=loud, unlike=LOUD),
    Tiles("many keys", 8, 152, 160, 8),
    Tiles("NaN in value 0", 4, 4, 8, 4, change=spoiled),
    Tiles("NaN right of the diagonal", 4, 4, 40, 4, change=poisoned),
)
