"""Mixed precision: compute in 16 bits or 8, add up in 32.

    formats.py              what numbers there are: fp32, tf32, bf16, fp16, fp8; their bits
    rounding.py             to the numbers of a format: to the nearest, or stochastically
    tf32.py                 float32 whose products are rounded, faster
    autocast.py             each operator chooses its precision
    fp8.py, mxfp8.py        8 bits, and a scale for each tensor or for each 32 numbers; fp8_linear.py: a layer in them
    loss_scaler.py          fp16 gradients that do not vanish; steps that overflow are skipped, on all ranks
    scale_rules.py          when the scale of the loss shrinks and grows: torch's rule, DeepSpeed's
    fp32_steps.py           16-bit weights, steps in fp32; of what is left over,
    master_weights.py           all is kept,
    kahan.py                    16 bits are kept,
    stochastic_rounding.py      nothing is, and chance makes up for it

Six ways to keep weights, with Adam:

                            bytes a parameter                                    an update of 2^-10 to a weight of 1
    weights             weight  gradient  beside it  moments   sum               in bf16
    fp32                   4       4          -         8       16               is there
    fp32, autocast         4       4          -         8       16, + 2 in use   is there
    16 bits alone          2       2          -         4        8               is lost, always (in fp16 it is there)
    MasterWeights          2       2          4         8       16               is there
    Kahan                  2       2          2         8       14               is there
    StochasticRounding     2       2          -         8       12               is there on average: one time in 8

Where torch has the same, it is the reference: bit for bit in rounding, step for step in scaling, by operator in dtypes.
"""

from . import fp8, fp8_linear, mxfp8
from .autocast import autocast, rule_of
from .formats import FORMATS, Bits, Format, bits_of, find_format, number_of
from .fp8_linear import in_fp8
from .fp32_steps import FP32Steps
from .kahan import Kahan
from .loss_scaler import LossScaler
from .master_weights import MasterWeights
from .rounding import round_to
from .scale_rules import Dynamic, Hysteresis, Static
from .stochastic_rounding import StochasticRounding
from .tf32 import tf32

__all__ = [
    "FORMATS",
    "Bits",
    "Dynamic",
    "FP32Steps",
    "Format",
    "Hysteresis",
    "Kahan",
    "LossScaler",
    "MasterWeights",
    "Static",
    "StochasticRounding",
    "autocast",
    "bits_of",
    "find_format",
    "fp8",
    "fp8_linear",
    "in_fp8",
    "mxfp8",
    "number_of",
    "round_to",
    "rule_of",
    "tf32",
]
