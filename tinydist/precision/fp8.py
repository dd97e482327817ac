"""FP8 with per-tensor scaling, which maps a tensor's amax to the format's largest value; and linear layers in FP8.

    x        0.001   0.02   -3.5          scale = amax / largest = 3.5 / 448 = 2^-7
    values   0.125   2.5    -448          fp8: x / scale, rounded; a byte each
    x again  0.00098 0.0195 -3.5          values * scale

    forward      y = x w^T          e4m3 * e4m3        3 bits of mantissa
    backward    dx = dy w           e5m2 * e4m3        gradients reach further: 2 bits, and a range of 2^32
                dw = dy^T x         e5m2 * e4m3

One outlier sets the scale of all: what is 2^18 times smaller (e4m3) is lost. So smaller blocks have scales of their
own: mxfp8.py. amax is that of the tensor itself, which costs a pass over it; delayed scaling takes it from the steps
before, and saves the pass.

A linear layer quantizes x, w and dy, and their transposes: both operands of a matmul are quantized along the reduction
dim. Products of fp8 values are exact in fp32 and accumulated in fp32. Here this is emulated, so it runs on any device;
in virtual time it is one operator at the device's float8 or mxfp8 rate. On a GPU, torch.nn.functional.scaled_mm does
it. Weights keep their dtype for the optimizer. Not emulated: Hopper's tensor cores keep about 14 bits of what they add
up.

Costs: half the bytes of 16 bits, twice the FLOP/s (Hopper, Blackwell), and the casts: a pass over each operand.
Sources: Micikevicius et al. 2022, FP8 Formats for Deep Learning, sections 2 and 3; NVIDIA, Transformer Engine (its
HYBRID format and current scaling); DeepSeek-AI 2024, DeepSeek-V3, section 3.3.2 (the 14 bits).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import register_flop_formula

from ..rules import floats, function, validate
from .formats import find_format

SMALLEST = 2.0**-126  # a scale below is no normal fp32 number


class Scaled(NamedTuple):
    """``values`` in fp8, and what they are multiplied by: one number, or one for each block along the last dim."""

    values: torch.Tensor
    scale: torch.Tensor

    @property
    def nbytes(self):
        return self.values.nbytes + self.scale.nbytes

    def dequantize(self):
        """The represented values, in fp32."""
        return dequantized(self.values, self.scale)


def dequantized(values, scale):
    if scale.ndim == 0:
        return values.float() * scale
    blocks = values.float().unflatten(-1, (scale.shape[-1], -1))  # [..., blocks, block]
    return (blocks * scale.float().unsqueeze(-1)).flatten(-2)


@validate(x=floats)
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


@torch.library.custom_op("tinydist::fp8_matmul", mutates_args=())
def fp8_matmul(
    a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    return (dequantized(a, a_scale) @ dequantized(b, b_scale).T).to(dtype)


@fp8_matmul.register_fake
def _(a, a_scale, b, b_scale, dtype):
    return a.new_empty(len(a), len(b), dtype=dtype)


@register_flop_formula(torch.ops.tinydist.fp8_matmul)
def _flops(a, a_scale, b, b_scale, *dtype, out_shape=None, **options):
    return 2 * a[0] * a[1] * b[0]


@validate(a=Scaled, b=Scaled, dtype=torch.dtype)
def matmul(a, b, dtype=torch.float32):
    """a b^T of ``Scaled`` matrices [m, k] and [n, k]: [m, n]."""
    if a.values.ndim != 2 or b.values.ndim != 2 or a.values.shape[1] != b.values.shape[1]:
        shapes = list(a.values.shape), list(b.values.shape)
        raise ValueError(f"matmul: expected [m, k] and [n, k], got {shapes[0]} and {shapes[1]}")
    return fp8_matmul(*a, *b, dtype)


@validate(x=floats, weight=floats, quantize=function)
def linear(x, weight, quantize=quantize, gradients="fp8 e5m2"):
    """x w^T, forward and backward in fp8. [..., in] and [out, in] to [..., out], in the dtype of x.

    quantize:   ``fp8.quantize``, or ``mxfp8.quantize`` for scales of blocks: then all dims must be multiples of 32.
    gradients:  the format of what comes backward; with mxfp8, "fp8 e4m3" will do.
    """
    rows = x.flatten(0, -2) if x.ndim > 1 else x.unsqueeze(0)
    y = FP8Linear.apply(rows, weight, quantize, gradients)
    return y.view(*x.shape[:-1], *y.shape[-1:])


@validate(quantize=function)
class in_fp8(TorchFunctionMode):
    """``with in_fp8():`` the three matmuls (y, dx, dw) of linear layers inside run in fp8. The rest stays as it is.

    Around ``autocast``, which then casts what is not. ``quantize`` and ``gradients``: those of ``linear``.
    """

    def __init__(self, quantize=quantize, gradients="fp8 e5m2"):
        super().__init__()
        self.quantize, self.gradients = quantize, gradients

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (self.linear if func is F.linear else func)(*args, **(kwargs or {}))

    def linear(self, input, weight, bias=None):
        y = linear(input, weight, self.quantize, self.gradients)
        return y if bias is None else y + bias


class FP8Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, quantize, gradients):
        ctx.save_for_backward(x, weight)
        ctx.quantize, ctx.gradients = quantize, gradients
        return matmul(quantize(x), quantize(weight), x.dtype)

    @staticmethod
    def backward(ctx, dy):
        (x, weight), quantize, gradients = ctx.saved_tensors, ctx.quantize, ctx.gradients
        dx = matmul(quantize(dy, gradients), quantize(weight.T), x.dtype)
        dw = matmul(quantize(dy.T, gradients), quantize(x.T), weight.dtype)
        return dx, dw, None, None
