"""Tile and wave quantization: a GPU computes a matmul's output in tiles, and tiles in waves of thread blocks.

    1024 x 10240, 108 multiprocessors      320 tiles of 256 x 128      waves: 108, 108, 104 | 4 have nothing to do
    8192 x 768                             192 tiles                   waves: 108, 84       | 24

A wave takes as long as if it were full and none of its tiles cut off. Then its tiles are written, and less than half of
that is hidden behind the next wave. Small tiles waste less at the edges, but read more for each FLOP:

    waves      ceil(ceil(M/m) ceil(N/n) / multiprocessors), of tiles m x n
    reuse      1 + 20 (1/m + 1/n): how much longer a FLOP takes than in a tile without end
    seconds    waves (2 m n K multiprocessors reuse / rate + 0.45 bytes of its tiles / bandwidth)

The size that takes least is chosen, as cuBLAS's heuristics do. Where there are at most half as many tiles as
multiprocessors, K is split among the idle ones (split-K), and the partial sums are added up in memory. So small, odd
and thin matmuls are slower. (NVIDIA, Matrix Multiplication Background, 2023, sections 2.3 and 3: tiles and waves.)
"""

from dataclasses import dataclass
from math import ceil

from ..rules import broken, count, rate, validate

LARGEST = 256, 128  # cuBLAS's, which reuses most of what it reads (NVIDIA, as above, section 2.3)
SIZES = LARGEST, LARGEST[::-1], (128, 128), (128, 64), (64, 128), (64, 64)
SHORTEST = 256  # of K, below which it is not split further

# Of all devices alike, rounded, with the least error on half of each table in benchmarks/products.py.
EDGE = 20.0  # what is read for a tile costs as much as this many more rows and columns
EXPOSED = 0.45  # part of writing a tile that nothing hides

LAYOUTS = tuple((m, n, m * n, 1 + EDGE * (1 / m + 1 / n)) for m, n in SIZES)


def shape(value):
    """three integers >= 1"""
    return isinstance(value, tuple) and len(value) == 3 and all(map(count, value))


@validate(best=shape, processors=count)
@dataclass(frozen=True)
class Tiles:
    """Of a device with so many multiprocessors. ``best``: M, N, K of the fastest matmul that was measured on it."""

    best: tuple[int, int, int]
    processors: int

    def waves(self, batch, rows, columns, tile=LARGEST) -> int:
        """Of tiles that lie either way, if they are not square."""
        tiles = min(ceil(rows / m) * ceil(columns / n) for m, n in (tile, tile[::-1]))
        return ceil(batch * tiles / self.processors)

    def choices(self, product, written=2):
        """(FLOPs, weighted by reuse; exposed bytes) of each size of tiles. ``written``: bytes moved per number."""
        batch, rows, columns, inner = product
        processors = self.processors
        for m, n, area, reuse in LAYOUTS:
            tiles = batch * -(-rows // m) * -(-columns // n)
            numbers = -(-tiles // processors) * processors * area
            exposed = EXPOSED * written * numbers
            splits = min(processors // tiles, inner // SHORTEST)
            if splits > 1:
                exposed += 4 * batch * rows * columns * (splits + 1)
                yield 2 * numbers * -(-inner // splits) * reuse, exposed
            else:
                yield 2 * numbers * inner * reuse, exposed

    @validate(measured=rate, bandwidth=rate)
    def rate_within(self, measured, bandwidth) -> float:
        """FLOP/s in a tile without end, so that the best matmul reaches its measured FLOP/s."""
        M, N, K = self.best
        whole = 2 * M * N * K / measured
        rates = [
            flops / (whole - exposed / bandwidth)
            for flops, exposed in self.choices((1, M, N, K))
            if whole > exposed / bandwidth
        ]
        if not rates:
            raise broken("Tiles.rate_within", "measured", slower_than_writing, measured)
        return min(rates)

    def seconds(self, product, rate, bandwidth, written=2) -> float:
        """Of ``batch`` matmuls [rows, inner] x [inner, columns], at this rate within the tiles."""
        return min(flops / rate + exposed / bandwidth for flops, exposed in self.choices(product, written))


def slower_than_writing(value):
    """FLOP/s at which the best matmul takes longer than its tiles take to be written"""


# The shapes of the fastest bfloat16 matmuls that were measured (ml-engineering@744d01e1, MAMF tables, read).
# Multiprocessors: 108 (NVIDIA, as above), 132 (FlashAttention-3, 2024, read), 148 (chipsandcheese.com on B200, read).
TILES = {
    "A100": Tiles((1024, 10240, 5120), 108),
    "H100": Tiles((2048, 2048, 13312), 132),
    "B200": Tiles((1792, 16128, 3072), 148),
    "GB200": Tiles((4096, 9728, 2048), 148),
}
