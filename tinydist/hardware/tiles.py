"""Tile and wave quantization: a GPU computes a matmul's output in tiles, and tiles in waves of thread blocks.

    1024 x 10240, 108 multiprocessors      320 tiles of 256 x 128      waves: 108, 108, 104 | 4 have nothing to do
    8192 x 768                             192 tiles                   waves: 108, 84       | 24

A wave takes as long as if it were full and none of its tiles cut off; then the tiles are written, while nothing is
computed:

    waves      ceil(ceil(M/256) ceil(N/128) / multiprocessors), or with 128 and 256, if they are fewer
    seconds    waves (2 256 128 K multiprocessors / rate + bytes of its tiles / bandwidth)

So small, odd and thin matmuls are slower, and only one measurement is needed per device: its best FLOP/s, with the
shape that reached it. (NVIDIA, Matrix Multiplication Background, 2023, sections 2.3 and 3: tiles and waves.)
"""

from dataclasses import dataclass
from math import ceil

from ..rules import broken, count, rate, validate

TILE = 256, 128  # the largest of cuBLAS, which reuses most of what it reads (NVIDIA, as above, section 2.3)


def shape(value):
    """three integers >= 1"""
    return isinstance(value, tuple) and len(value) == 3 and all(map(count, value))


@validate(best=shape, processors=count)
@dataclass(frozen=True)
class Tiles:
    """Of a device with so many multiprocessors. ``best``: M, N, K of the fastest matmul that was measured on it."""

    best: tuple[int, int, int]
    processors: int

    def waves(self, batch, rows, columns) -> int:
        tiles = min(ceil(rows / m) * ceil(columns / n) for m, n in (TILE, TILE[::-1]))
        return ceil(batch * tiles / self.processors)

    @property
    def numbers(self):
        """Two for each number of a wave: its bytes, in 16 bits; and its FLOPs, for each number of K."""
        return 2 * TILE[0] * TILE[1] * self.processors

    @validate(measured=rate, bandwidth=rate)
    def rate_within(self, measured, bandwidth) -> float:
        """FLOP/s while tiles are computed, so that the best matmul reaches its measured FLOP/s."""
        M, N, K = self.best
        waves = self.waves(1, M, N)
        computing = 2 * M * N * K / measured - waves * self.numbers / bandwidth
        if computing <= 0:
            raise broken("Tiles.rate_within", "measured", slower_than_writing, measured)
        return waves * self.numbers * K / computing

    def seconds(self, product, rate, bandwidth) -> float:
        """Of ``batch`` matmuls [rows, inner] x [inner, columns], at this rate within the tiles."""
        batch, rows, columns, inner = product
        return self.waves(batch, rows, columns) * (self.numbers * inner / rate + self.numbers / bandwidth)


def slower_than_writing(value):
    """FLOP/s at which the best matmul takes longer than its tiles take to be written"""


# The shapes of the fastest bfloat16 matmuls that were measured (ml-engineering@744d01e1, MAMF tables, read).
# Multiprocessors: 108 (NVIDIA, as above), 132 (FlashAttention-3, 2024, read), 148 (recalled).
TILES = {
    "A100": Tiles((1024, 10240, 5120), 108),
    "H100": Tiles((2048, 2048, 13312), 132),
    "B200": Tiles((1792, 16128, 3072), 148),
    "GB200": Tiles((4096, 9728, 2048), 148),
}
