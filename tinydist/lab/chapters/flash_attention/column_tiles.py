"""The columns of tiles that a backward pass is tried on: their sizes, and what is strange about them."""

import math
from dataclasses import dataclass
from functools import partial

import torch

from ...alone import copied, input_of
from .columns import column
from .rows import row
from .tile_costs import Tiled

D, E = 4, 3


@dataclass(frozen=True)
class Tiles:
    about: str
    keys: int
    start: int
    queries: int
    tile: int
    poisoned: bool = False  # NaN where nothing need be read
    loud: bool = False  # for the first query that stands here, the key after its own has a score of 400

    @property
    def begin(self):
        """The first query of the first tile that sees a key."""
        return self.start // self.tile * self.tile

    @property
    def work(self):
        """Of a right answer."""
        rest = self.queries - self.begin
        seen = sum(max(0, self.queries - self.start - i) for i in range(self.keys))
        return Tiled(seen, self.keys * rest, math.ceil(rest / self.tile), self.tile, 2 * (D + E), products=4)

    def input(self):
        generator = torch.Generator().manual_seed(2)
        n = self.queries
        q, k, v, dout = (torch.randn(n, width, generator=generator) for width in (D, D, E, E))
        q *= 2
        if self.loud:
            q[:, 0], k[self.start + 1, 0] = 0, 100
            q[self.start, 0] = 8
        out, lse = row(q, k, v, 0, n)
        delta = (dout * out).sum(1)
        own = slice(self.start, self.start + self.keys)
        given = (k[own], v[own], q, dout, lse, delta)
        expected = column(*given, self.start, self.tile)
        if self.poisoned:
            for each in (q, dout, lse, delta):
                each[: self.begin] = math.nan
        keys = f"{self.keys} keys from position {self.start}, {n} queries, tiles of {self.tile} queries"
        given = *given, self.start, self.tile
        return input_of(partial(copied, given), f"{keys} ({self.about})", (self, *expected))


CASES = (
    Tiles("one tile", 4, 0, 4, 4),
    Tiles("square tiles", 4, 4, 16, 4),
    Tiles("tiles that are not square", 3, 6, 16, 4),
    Tiles("more keys than queries of a tile", 6, 4, 14, 2),
    Tiles("fewer keys than queries of a tile", 2, 7, 15, 5),
    Tiles("a short last tile", 4, 4, 11, 4),
    Tiles("one key, tiles of one query", 1, 3, 6, 1),
    Tiles("a tile longer than the queries", 3, 0, 5, 8),
    Tiles("a hidden key with a score of 400", 4, 4, 12, 4, loud=True),
    Tiles("many queries", 8, 0, 128, 8),
    Tiles("above the diagonal", 4, 32, 40, 4, poisoned=True),
)
