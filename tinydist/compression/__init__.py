"""Fewer bytes: gradients in one bit per element, in low rank, as the top-k elements, or sent seldom.

    adam.py                   what the optimizers share with Adam: moments
    bits.py                   signs of floats, packed into bytes
    compressed_all_reduce.py  the mean over ranks in one bit per number, with error feedback on both sides
    one_bit_adam.py           1-bit Adam: a warm-up of Adam, then momenta in one bit
    zero_one_adam.py          0/1 Adam: the variance seldom, gradients in one bit, then steps that send nothing
    lamb.py                   LAMB: the step of each tensor as long as its weights say, for large batches
    one_bit_lamb.py           1-bit LAMB
    power_sgd.py              PowerSGD: each matrix of gradients as the product of two thin ones
    top_k.py                  the largest k gradients, and where they are
    local_steps.py            many local steps, then one of an outer optimizer (DiLoCo)

What is left out is not lost: an error is kept, and added to what is compressed next.

| bytes a rank sends in a step, of n numbers on p ranks | |
|---|---|
| all-reduce of fp32, a ring                            | 2 (p-1)/p 4n |
| of bf16                                               | 2 (p-1)/p 2n |
| in one bit                                            | 2 (p-1)/p n/8, and 2 (p-1) scales of 4 bytes |
| PowerSGD of rank r, a matrix of n = a b               | 2 (p-1)/p 4r (a + b) |
| top-k, all-gather of values and indices               | (p-1) 12k |
| local steps, one all-reduce in H steps                | 2 (p-1)/p 4n / H |
"""

from .compressed_all_reduce import compressed_all_reduce, error_buffers
from .lamb import Lamb
from .local_steps import LocalSteps
from .one_bit_adam import OneBitAdam
from .one_bit_lamb import OneBitLamb
from .power_sgd import PowerSGD
from .top_k import TopK
from .zero_one_adam import ZeroOneAdam

__all__ = [
    "Lamb",
    "LocalSteps",
    "OneBitAdam",
    "OneBitLamb",
    "PowerSGD",
    "TopK",
    "ZeroOneAdam",
    "compressed_all_reduce",
    "error_buffers",
]
