"""FP8 with one scale for a tensor: its largest number becomes the largest of the format.

    x        0.001   0.02   -3.5          scale = amax / largest = 3.5 / 448 = 2^-7
    values   0.125   2.5    -448          fp8: x / scale, rounded; a byte each
    x again  0.00098 0.0195 -3.5          values * scale

    forward      y = x w^T          e4m3 * e4m3        3 bits of mantissa
    backward    dx = dy w           e5m2 * e4m3        gradients reach further: 2 bits, and a range of 2^32
                dw = dy^T x         e5m2 * e4m3

One outlier sets the scale of all: what is 2^18 times smaller (e4m3) is lost. So smaller blocks have scales of their
own: mxfp8.py. amax is that of the tensor itself, which costs a pass over it; delayed scaling takes it from the steps
before, and saves the pass.

Costs: half the bytes of 16 bits, twice the FLOP/s (Hopper, Blackwell), and the casts: a pass over each operand.
Sources: Micikevicius et al. 2022, FP8 Formats for Deep Learning, sections 2 and 3; NVIDIA, Transformer Engine (its
HYBRID format and current scaling).
"""

from typing import NamedTuple

import torch

from ..rules import floats, takes
from .formats import find_format

SMALLEST = 2.0**-126  # a scale below is no normal fp32 number


class Scaled(NamedTuple):
    """``values`` in fp8, and what they are multiplied by: one number, or one for each block along the last dim."""

    values: torch.Tensor
    scale: torch.Tensor

    @property
    def nbytes(self):
        return self.values.nbytes + self.scale.nbytes

    def wide(self):
        """The numbers that these are, in fp32."""
        return widened(self.values, self.scale)


def widened(values, scale):
    if scale.ndim == 0:
        return values.float() * scale
    blocks = values.float().unflatten(-1, (scale.shape[-1], -1))  # [..., blocks, block]
    return (blocks * scale.float().unsqueeze(-1)).flatten(-2)


@takes(x=floats)
@torch.no_grad()
def quantize(x, format="fp8 e4m3"):
    """``x`` in an 8-bit format, with one fp32 scale. An inf or NaN in it makes all of it NaN."""
    format = eight_bits("quantize", format)
    amax = torch.linalg.vector_norm(x, float("inf"), dtype=torch.float32)
    scale = (amax / format.largest).clamp(min=SMALLEST)
    return Scaled(cast(x, scale, format.dtype), scale)


@torch.library.custom_op("tinydist::cast_to_fp8", mutates_args=())
def cast(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """One operator, as where it is fused."""
    return (x / scale).to(dtype)


@cast.register_fake
def _(x, scale, dtype):
    return torch.empty_like(x, dtype=dtype)


def eight_bits(operation, format):
    format = find_format(format)
    if format.bits != 8 or format.dtype is None:
        raise ValueError(f"{operation}: format must be 'fp8 e4m3' or 'fp8 e5m2', got {format}")
    return format
