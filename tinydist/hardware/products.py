"""Matmuls as they are measured: tiles and waves, memory, and the power limit.

    tiles        tiles.py: waves of tiles of the size that takes least, at the rate within a tile
    memory       operands read once, the output written, at the bandwidth of a copy
    power        FLOPs at the sustained rate, and 0.3 of the time that memory takes: bytes cost energy, too
    seconds      start + the largest of the three

A GPU that computes for more than some milliseconds reaches its power limit and lowers its clock: of B200 in
products_b200.csv, matmuls of less than 0.1 ms reach 65 % of the peak, those above 1 ms 48 %, whatever their shape. In a
training step it is always warm, so ``sustained`` is the default. ``sustained=False`` is a short benchmark.

    A100 SXM, 8192 x 8192 x 8192, zeros 295 TFLOP/s, random numbers 257    (H. He, Matrix Multiplications on GPUs
                                                                           Run Faster When Given Predictable Data)
Dynamic power grows as the cube of the clock. So the sustained rate at another power limit is as its cube root:
A100 PCIe, 300 W, is at 0.92 of A100 SXM, 400 W; (300/400)^(1/3) is 0.91.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from ..rules import broken, count, flag, positive, rate, validate
from .lookup import look_up
from .tiles import Tiles

TERA = 1e12
FLOAT8 = "float8", "mxfp8"
FP8 = 1.75  # times the rate of bfloat16 (below)
ENERGY = 0.3  # of the time that memory takes, a matmul at the power limit takes longer. Fitted as EDGE in tiles.py
START = 2.7e-6  # seconds of a kernel before it computes and after; fitted as EDGE. An empty one takes 1.4 (kernels.py)


@validate(within=rate, burst=rate, sustained=rate, bandwidth=rate, processors=count, watts=positive, fp8=positive)
@dataclass(frozen=True)
class ProductRates:
    within: float  # FLOP/s in a tile without end
    burst: float  # FLOP/s that nothing exceeds, cold
    sustained: float  # and at the power limit
    bandwidth: float  # bytes/s of a copy
    processors: int
    watts: float  # the power limit
    fp8: float | None = None  # how many times faster matmuls of float8 are, on tensor cores that know it

    @cached_property
    def tiles(self):
        return Tiles((1, 1, 1), self.processors)

    @validate(watts=positive)
    def limited_to(self, watts) -> "ProductRates":
        """With another power limit (``nvidia-smi -pl``)."""
        return replace(self, sustained=min(self.burst, self.sustained * (watts / self.watts) ** (1 / 3)), watts=watts)


# within, sustained: on half of the rows of a table (benchmarks/products.py has what the other half says).
#   A100, H100, H200, GB200: tables of aiconfigurator@095f58a5, systems/data/*/gemm (read): sglang 0.5.10 on A100 SXM,
#   0.5.14 on H100 and H200, TensorRT-LLM 1.3.0rc17 on GB200 (1.1 kW of 1.2 measured), random numbers. sustained is of
#   their rows above 2 ms. vidur@7d47513, profiling/compute/h100, Llama-2-70b: 0.70 of the peak of 4096 x 57344 x 8192.
#   A100 PCIe, B200: benchmarks/measured. Other B200s sustain more: 0.64 (sglang 0.5.14, above 2 ms).
# fp8: 1.71 to 1.87 times bfloat16's rate on H100, H200, B200, GB200, of rows above 2 ms in the same tables (medians;
#   1.4 to 1.6 where a quantization of the input is included: count that as memory).
# burst: the fastest that was measured (ml-engineering@744d01e1, MAMF tables, read); B200: in the table.
RATES = {
    "A100": ProductRates(1.06 * 312 * TERA, 271.2 * TERA, 0.815 * 312 * TERA, 0.87 * 2.0e12, 108, 400),
    "A100 PCIe": ProductRates(1.06 * 312 * TERA, 252.9 * TERA, 0.753 * 312 * TERA, 0.87 * 1.935e12, 108, 300),
    "H100": ProductRates(1.28 * 989 * TERA, 794.5 * TERA, 0.736 * 989 * TERA, 0.93 * 3.35e12, 132, 700, FP8),
    "H200": ProductRates(1.28 * 989 * TERA, 794.5 * TERA, 0.700 * 989 * TERA, 0.80 * 4.8e12, 132, 700, FP8),
    "B200": ProductRates(1.10 * 2250 * TERA, 0.65 * 2250 * TERA, 0.49 * 2250 * TERA, 0.80 * 8e12, 148, 1000, FP8),
    "GB200": ProductRates(1.30 * 2500 * TERA, 1822 * TERA, 0.589 * 2500 * TERA, 0.80 * 8e12, 148, 1200, FP8),
}
# Torchtitan's machines: H100 with 96 GB of HBM2e and 2.4 TB/s, limited to 500 W (pytorch/torchtitan@31a17bfd
# benchmarks/llama3_h100_202412_torchtitan.md, read). 2.41: Ujeniya et al. 2026, arXiv 2604.11391, abstract.
RATES["H100 500W"] = replace(RATES["H100"].limited_to(500), bandwidth=0.93 * 2.41e12)


def product_rates(device) -> ProductRates:
    """``'H100'``, and so on; ProductRates are returned as they are."""
    return device if isinstance(device, ProductRates) else look_up("product rates", RATES, device)


def on_tensor_cores(value):
    """one for which the device has tensor cores"""


@validate(batch=count, rows=count, columns=count, inner=count, dtype=str, accumulate=flag, sustained=flag)
def product_time(device, batch, rows, columns, inner, dtype="bfloat16", accumulate=False, sustained=True) -> float:
    """Seconds of ``batch`` matmuls [rows, inner] x [inner, columns].

    ``accumulate``: the output is added to a gradient in float32, of which 4 bytes are read and 4 written.
    """
    rates = product_rates(device)
    if dtype.startswith(FLOAT8) and rates.fp8 is None:
        raise broken("product_time", "dtype", on_tensor_cores, dtype)
    return _product_time(rates, batch, rows, columns, inner, dtype, accumulate, sustained)


@lru_cache(100_000)
def _product_time(rates, batch, rows, columns, inner, dtype, accumulate, sustained):
    faster, size = (rates.fp8, 1) if dtype.startswith(FLOAT8) else (1.0, 2)
    written = 8 if accumulate else 2
    tiles = rates.tiles.seconds((batch, rows, columns, inner), rates.within * faster, rates.bandwidth, written)
    memory = batch * (size * inner * (rows + columns) + written * rows * columns) / rates.bandwidth
    flops = 2 * batch * rows * columns * inner / faster
    power = flops / rates.sustained + ENERGY * memory if sustained else flops / rates.burst
    return START + max(tiles, memory, power)
