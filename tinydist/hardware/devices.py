"""Accelerators: peak FLOP/s, memory capacity, memory bandwidth.

    peak                FLOP/s by dtype, dense (data sheets print twice as much, for 2:4 sparse matrices)
    memory              bytes; a data sheet's GB are 1e9
    memory_bandwidth    bytes/s, reads and writes together
    launch_overhead     seconds that the CPU takes to start an operator
    runs_ahead          whether operators are launched asynchronously, as on a GPU
    best_matmul         best published matmul FLOP/s, by dtype

Peaks are theoretical; the last one is achievable.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..rules import amount, count, flag, positive, rate, validate
from .lookup import look_up
from .tiles import Tiles

GB = 1e9  # bytes
TB = 1e12
TERA = 1e12


@validate(name=str, peak=Mapping, runs_ahead=flag, best_matmul=Mapping, tiles=Tiles, source=str)
@dataclass(frozen=True)
class Device:
    name: str
    peak: Mapping[str, float] = field(hash=False)  # FLOP/s
    memory: float  # bytes
    memory_bandwidth: float  # bytes/s
    launch_overhead: float = 0.0  # seconds
    runs_ahead: bool = False
    best_matmul: Mapping[str, float] = field(default_factory=dict, hash=False)  # FLOP/s, measured
    source: str = ""
    tiles: Tiles | None = None  # how matmuls are tiled; None: only their FLOPs count

    def __post_init__(self):
        for what, value in [("memory", self.memory), ("memory bandwidth", self.memory_bandwidth)]:
            self._must_be(rate(value), f"{what} must be > 0", value)
        for dtype, value in self.peak.items():
            self._must_be(rate(value), f"peak FLOP/s of {dtype} must be > 0", value)
        self._must_be(amount(self.launch_overhead), "launch overhead must be 0 s or more", self.launch_overhead)

    def _must_be(self, true, rule, value):
        if not true:
            raise ValueError(f"device {self.name!r}: {rule}, got {value}")

    def __str__(self):
        return self.name

    def peak_of(self, dtype) -> float:
        """Peak FLOP/s in ``dtype``: a name such as 'bfloat16', or torch's dtype. Without 'tf32', the float32 peak."""
        name = str(dtype).removeprefix("torch.")
        name = "float8" if name.startswith("float8") else name  # e4m3 and e5m2 run alike
        name = "float32" if name == "tf32" and name not in self.peak else name
        if name not in self.peak:
            raise ValueError(f"{self.name} has no peak FLOP/s for {name}; available: {', '.join(self.peak)}")
        return self.peak[name]

    @validate(matmul=positive, memory=positive, tiles=Tiles)
    def at(self, matmul=1.0, memory=1.0, tiles=None) -> "Device":
        """This device at fractions of its peak FLOP/s and memory bandwidth. ``tiles``: only the best matmul shape
        reaches that fraction; others are slower (tile and wave quantization)."""
        if matmul == memory == 1 and tiles in (None, self.tiles):
            return self
        return replace(
            self,
            name=f"{self.name} at {matmul:.0%} of its peak, {memory:.0%} of its memory's bandwidth",
            tiles=tiles or self.tiles,
            peak={dtype: rate * matmul for dtype, rate in self.peak.items()},
            memory_bandwidth=self.memory_bandwidth * memory,
        )

    @validate(processes=count)
    def shared_by(self, processes) -> "Device":
        """The share of this device that each of ``processes`` gets if all compute concurrently."""
        return replace(
            self,
            name=f"1/{processes} of {self.name}",
            peak={dtype: rate / processes for dtype, rate in self.peak.items()},
            best_matmul={dtype: rate / processes for dtype, rate in self.best_matmul.items()},
            memory=self.memory / processes,
            memory_bandwidth=self.memory_bandwidth / processes,
        )


# Where a comment says nothing else: data sheets, as collected in COLLECTED (read), and the matmuls of its
# MAMF tables. float64 is recalled from data sheets, with tensor cores from the A100 on.
COLLECTED = "stas00/ml-engineering@744d01e1 compute/accelerator/README.md"

# A round figure, assumed: PyTorch needs 5 to 25 us of the CPU to start an eager operator on a GPU.
LAUNCH = 5e-6  # seconds


def gpu(name, gigabytes, terabytes_per_second, best_matmul=None, source=COLLECTED, **teraflops):
    return Device(
        name,
        {dtype: rate * TERA for dtype, rate in teraflops.items()},
        gigabytes * GB,
        terabytes_per_second * TB,
        LAUNCH,
        True,
        {dtype: rate * TERA for dtype, rate in (best_matmul or {}).items()},
        source,
    )


# Its tensor cores know float16 only: bfloat16 is computed as float32, at its rate at best.
V100_RATES = dict(float64=7.8, float32=15.7, bfloat16=15.7, float16=125)
V100_SHEET = "NVIDIA V100 data sheet, recalled; float16: ml-engineering@744d01e1 training/model-parallelism (read)"
V100 = gpu("V100", 32, 0.9, source=V100_SHEET, **V100_RATES)
# The smaller one's memory is recalled from the data sheet, which gives the larger one 2039 GB/s.
A100_RATES = dict(float64=19.5, float32=19.5, tf32=156, bfloat16=312, float16=312, int8=624)
A100_40GB = gpu("A100 40GB", 40, 1.555, {"bfloat16": 271.2}, **A100_RATES)
A100_80GB = gpu("A100 80GB", 80, 2.0, {"bfloat16": 271.2}, **A100_RATES)
HOPPER_RATES = dict(float64=67, float32=67, tf32=494.5, bfloat16=989, float16=989, float8=1979, int8=1979)
H100 = gpu("H100", 80, 3.35, {"bfloat16": 794.5, "float8": 1402.6}, **HOPPER_RATES)
# Limited to 500 W, with HBM2e: torchtitan@b5bcd76c, benchmarks/llama3_h100_202412_torchtitan.md (read); 2.41 TB/s:
# Ujeniya et al. 2026, arXiv 2604.11391 (secondary).
H100_500W = gpu("H100 500W", 96, 2.41, **HOPPER_RATES)
# 3.35 TB/s and 990 TFLOP/s: deepseek-ai/FlashMLA@12cfd32b docs/20250422-new-kernel-deep-dive.md (read).
H800_SHEET = "H100: the same but for NVLink, of 200 GB/s per direction (recalled)"
H800 = gpu("H800", 80, 3.35, source=H800_SHEET, **HOPPER_RATES)
H200 = gpu("H200", 141, 4.8, {"bfloat16": 794.5, "float8": 1453.4}, **HOPPER_RATES)
# Its tensor cores take scales of blocks (Mishra et al. 2025, Recipes for Pre-training LLMs with MXFP8, section 1; data
# sheets give one rate for FP8 and FP6, which there is only with such scales).
BLACKWELL_RATES = dict(
    float64=40, float32=80, tf32=1125, bfloat16=2250, float16=2250, float8=4500, mxfp8=4500, nvfp4=9000, int8=4500
)
B200 = gpu("B200", 180, 8.0, {"bfloat16": 1745, "float8": 3432.5}, **BLACKWELL_RATES)
GB200_RATES = dict(float32=80, tf32=1250, bfloat16=2500, float16=2500, float8=5000, mxfp8=5000, nvfp4=10000, int8=5000)
GB200 = gpu("GB200", 186, 8.0, {"bfloat16": 1822, "float8": 3615.6}, **GB200_RATES)

# 8 cores at 3 GHz, each with two 8-wide fused multiply-adds (AVX2): 8 * 3e9 * 2 * 8 * 2. Narrow floats are computed
# as float32. Two channels of DDR4-3200: 2 * 8 bytes * 3.2e9. The overhead is that of an 8 x 8 matmul in torch 2.13.
CORES = 8
LAPTOP_CPU = Device(
    "laptop CPU",
    {"float64": 384e9, "float32": 768e9, "bfloat16": 768e9, "float16": 768e9},
    16 * GB,
    51.2 * GB,
    1.4e-6,
    source="arithmetic; the overhead was measured",
)

# No such thing: on it only messages take time.
FREE = dict.fromkeys(["float64", "float32", "bfloat16", "float16", "float8", "mxfp8", "nvfp4", "int8"], math.inf)
INSTANT = Device("instant", FREE, math.inf, math.inf, source="a thought experiment")

DEVICES = {
    each.name: each for each in (V100, A100_40GB, A100_80GB, H100, H100_500W, H800, H200, B200, GB200, LAPTOP_CPU)
}


def find_device(name) -> Device:
    """``'H100'`` and so on; a Device is returned as it is."""
    return look_up("device", DEVICES, name)
