"""Mixed precision: compute in 16 or 8 bits, accumulate in 32.

    formats.py              floating-point formats: fp32, tf32, bf16, fp16, fp8, fp4; their bits
    rounding.py             rounding to a format: to nearest, or stochastic
    tf32.py                 float32 matmuls with inputs rounded to TF32
    autocast.py             automatic precision per operator
    fp8.py, mxfp8.py        8-bit formats with a scale per tensor or per 32 elements; linear layers
    fp4.py                  MXFP4, NVFP4, and a linear layer that trains in it
    loss_scaler.py          loss scaling for fp16; steps that overflow are skipped on all ranks
    fp32_optimizer.py       16-bit weights with fp32 optimizer steps; the rounding error is lost, or
    master_weights.py           kept in fp32, kept in 16 bits (Kahan), or left to chance (stochastic rounding)

Six ways to store weights, with Adam:

                            bytes per parameter                                  an update of 2^-10 to a weight of 1
    weights             weight  gradient  beside it  moments   sum               in bf16
    fp32                   4       4          -         8       16               is kept
    fp32, autocast         4       4          -         8       16, + 2 in use   is kept
    16 bits alone          2       2          -         4        8               is always lost (in fp16 it is kept)
    MasterWeights          2       2          4         8       16               is kept
    Kahan                  2       2          2         8       14               is kept
    StochasticRounding     2       2          -         8       12               is kept on average: one time in 8

Where torch has the same, it is the reference: bit for bit in rounding, step for step in scaling, by operator in dtypes.
"""

from . import fp4, fp8, mxfp8
from .autocast import autocast
from .formats import FORMATS, Bits, Format, decode_bits, encode_bits, find_format
from .fp8 import in_fp8
from .fp32_optimizer import FP32Optimizer
from .loss_scaler import DynamicLossScale, HysteresisLossScale, LossScaler, StaticLossScale
from .master_weights import Kahan, MasterWeights, StochasticRounding
from .rounding import round_to
from .tf32 import tf32

__all__ = [
    "FORMATS",
    "Bits",
    "DynamicLossScale",
    "FP32Optimizer",
    "Format",
    "HysteresisLossScale",
    "Kahan",
    "LossScaler",
    "MasterWeights",
    "StaticLossScale",
    "StochasticRounding",
    "autocast",
    "decode_bits",
    "encode_bits",
    "find_format",
    "fp4",
    "fp8",
    "in_fp8",
    "mxfp8",
    "round_to",
    "tf32",
]
