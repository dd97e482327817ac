"""Mixed precision: compute in 16 bits, add up in 32.

    formats.py          what numbers there are: fp32, tf32, bf16, fp16, fp8; their bits
    rounding.py         to the numbers of a format: to the nearest, or stochastically
    autocast.py         each operator chooses its precision
    loss_scaler.py      fp16 gradients that do not vanish; steps that overflow are skipped, on all ranks
    scale_rules.py      when the scale of the loss shrinks and grows: torch's rule, DeepSpeed's
    master_weights.py   16-bit weights, and an optimizer with fp32 copies: 16 bytes a parameter

Where torch has the same, it is the reference: bit for bit in rounding, step for step in scaling, by operator in dtypes.
"""

from .autocast import autocast, rule_of
from .formats import FORMATS, Bits, Format, bits_of, find_format, number_of
from .loss_scaler import LossScaler
from .master_weights import MasterWeights
from .rounding import round_to
from .scale_rules import Dynamic, Hysteresis, Static

__all__ = [
    "FORMATS",
    "Bits",
    "Dynamic",
    "Format",
    "Hysteresis",
    "LossScaler",
    "MasterWeights",
    "Static",
    "autocast",
    "bits_of",
    "find_format",
    "number_of",
    "round_to",
    "rule_of",
]
