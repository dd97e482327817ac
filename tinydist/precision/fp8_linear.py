"""A linear layer whose three products are computed in fp8.

    y  = x  w^T      quantize(x)     quantize(w)           [rows, out]
    dx = dy w        quantize(dy)    quantize(w^T)         [rows, in]
    dw = dy^T x      quantize(dy^T)  quantize(x^T)         [out, in]

Products of fp8 numbers are exact in fp32, and are added up in fp32; both operands are read along the dim that is added
up. Here that is emulated, so the numbers can be seen anywhere; in virtual time it is one operator at the device's rate
for float8, or for mxfp8. On a GPU, torch.nn.functional.scaled_mm does it. Weights stay what they are, to be stepped on.

Not emulated: Hopper's tensor cores keep about 14 bits of what they add up (DeepSeek-AI 2024, DeepSeek-V3, section
3.3.2).
"""

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import register_flop_formula

from ..rules import floats, function, takes
from . import fp8
from .fp8 import Scaled, widened


@torch.library.custom_op("tinydist::fp8_matmul", mutates_args=())
def fp8_matmul(
    a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    return (widened(a, a_scale) @ widened(b, b_scale).T).to(dtype)


@fp8_matmul.register_fake
def _(a, a_scale, b, b_scale, dtype):
    return a.new_empty(len(a), len(b), dtype=dtype)


@register_flop_formula(torch.ops.tinydist.fp8_matmul)
def _flops(a, a_scale, b, b_scale, *dtype, out_shape=None, **options):
    return 2 * a[0] * a[1] * b[0]


@takes(a=Scaled, b=Scaled, dtype=torch.dtype)
def matmul(a, b, dtype=torch.float32):
    """a b^T of ``Scaled`` matrices [m, k] and [n, k]: [m, n]."""
    if a.values.ndim != 2 or b.values.ndim != 2 or a.values.shape[1] != b.values.shape[1]:
        shapes = list(a.values.shape), list(b.values.shape)
        raise ValueError(f"matmul: it takes [m, k] and [n, k], got {shapes[0]} and {shapes[1]}")
    return fp8_matmul(*a, *b, dtype)


@takes(x=floats, weight=floats, quantize=function)
def linear(x, weight, quantize=fp8.quantize, gradients="fp8 e5m2"):
    """x w^T, forward and backward in fp8. [..., in] and [out, in] to [..., out], in the dtype of x.

    quantize:   ``fp8.quantize``, or ``mxfp8.quantize`` for scales of blocks: then all dims must be multiples of 32.
    gradients:  the format of what comes backward; with mxfp8, "fp8 e4m3" will do.
    """
    rows = x.flatten(0, -2) if x.ndim > 1 else x.unsqueeze(0)
    y = Linear.apply(rows, weight, quantize, gradients)
    return y.view(*x.shape[:-1], *y.shape[-1:])


@takes(quantize=function)
class in_fp8(TorchFunctionMode):
    """``with in_fp8():`` the linear layers inside are computed in fp8, forward and backward. The rest stays as it is.

    Around ``autocast``, which then casts what is not. ``quantize`` and ``gradients``: those of ``linear``.
    """

    def __init__(self, quantize=fp8.quantize, gradients="fp8 e5m2"):
        super().__init__()
        self.quantize, self.gradients = quantize, gradients

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (self.linear if func is F.linear else func)(*args, **(kwargs or {}))

    def linear(self, input, weight, bias=None):
        y = linear(input, weight, self.quantize, self.gradients)
        return y if bias is None else y + bias


class Linear(torch.autograd.Function):
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
