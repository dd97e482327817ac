"""Layers as the steps that they are: pointwise operators, and reductions over the last dims that keep them as 1.

    softmax       e = exp(x - amax(x))             y = e / sum(e)
    layer norm    d = x - mean(x)                  y = d rsqrt(mean(d d) + eps) w + b

A compiler that knows ten operators and these rows knows the layers too. Each row is a formula of the layer's paper, or
its derivative; y is what forward gave, dy the gradient of it. A row that gives NotImplemented leaves the operator to
torch. So do all of them for integers, for tensors without elements, and in fp16, where torch's layers compute in fp32
since sums overflow. In bf16 each step is rounded.
"""

import math
from functools import wraps

import torch

from .operators import FLOATS

aten = torch.ops.aten
DTYPES = FLOATS | {torch.bfloat16}


def softmax(x, dim, half_to_float):
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


def softmax_backward(dy, y, dim, dtype):
    return (dy - (dy * y).sum(dim, keepdim=True)) * y


def log_softmax(x, dim, half_to_float):
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


def log_softmax_backward(dy, y, dim, dtype):
    return dy - y.exp() * dy.sum(dim, keepdim=True)


def layer_norm(x, shape, weight, bias, eps):
    dims = list(range(-len(shape), 0))
    centred = x - mean(x, dims, True)
    rstd = (mean(centred * centred, dims, True) + eps).rsqrt()
    y = centred * rstd
    y = y if weight is None else y * weight
    return y if bias is None else y + bias, x.mean(dims, keepdim=True), rstd


def layer_norm_backward(dy, x, shape, x_mean, rstd, weight, bias, wanted):
    dims, before = list(range(-len(shape), 0)), list(range(x.ndim - len(shape)))
    normed = (x - x_mean) * rstd
    g = dy if weight is None else dy * weight
    dx = (g - mean(g, dims, True) - normed * mean(g * normed, dims, True)) * rstd
    return dx if wanted[0] else None, *(
        (each.sum(before).view(shape) if before else each) if asked else None
        for each, asked in zip((dy * normed, dy), wanted[1:])
    )


def mean(x, dims=None, keepdim=False, dtype=None):
    if dtype:
        return NotImplemented
    total = x.sum(dims, keepdim=keepdim)
    return total * (total.numel() / x.numel())


SLOPE = math.sqrt(2 / math.pi)


def gelu(x, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + (SLOPE * (x + 0.044715 * x * x * x)).tanh())
    return 0.5 * x * (1 + (x * math.sqrt(0.5)).erf())


def gelu_backward(dy, x, approximate="none"):
    if approximate == "tanh":
        t = (SLOPE * (x + 0.044715 * x * x * x)).tanh()
        return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SLOPE * (1 + 3 * 0.044715 * x * x))
    density = (-0.5 * x * x).exp() * (1 / math.sqrt(2 * math.pi))
    return dy * (0.5 * (1 + (x * math.sqrt(0.5)).erf()) + x * density)


def silu_backward(dy, x):
    s = x.sigmoid()
    return dy * s * (1 + x * (1 - s))


def keep_dims(reduce):
    """Reduce and keep the dims, then drop them: a view."""

    def reduced(x, dims=(), keepdim=False, **options):
        if options or not x.ndim or (dims and keepdim):
            return NotImplemented
        dims = [dims] if isinstance(dims, int) else list(dims or range(x.ndim))
        return reduce(x, dims) if keepdim else reduce(x, dims).squeeze(dims)

    return reduced


def sum_of_all(x, dtype=None):
    return NotImplemented if dtype or not x.ndim else x.sum(list(range(x.ndim)), keepdim=True).view([])


def ones_like(x, dtype=None, **options):
    return torch.full(x.shape, 1.0, dtype=dtype or x.dtype, device=x.device)


def baddbmm(bias, a, b, *, beta=1, alpha=1):
    return torch.bmm(a, b) * alpha + bias * beta if beta else NotImplemented  # with 0 a NaN in bias counts for nothing


def or_torch(steps):
    """The steps, where torch's own operator would give the same."""

    @wraps(steps)
    def decomposed(*args, **options):
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        same = all(each.dtype in DTYPES and each.numel() for each in tensors)
        return steps(*args, **options) if same else NotImplemented

    return decomposed


STEPS = {
    aten._softmax.default: softmax,
    aten._softmax_backward_data.default: softmax_backward,
    aten._log_softmax.default: log_softmax,
    aten._log_softmax_backward_data.default: log_softmax_backward,
    aten.native_layer_norm.default: layer_norm,
    aten.native_layer_norm_backward.default: layer_norm_backward,
    aten.gelu.default: gelu,
    aten.gelu_backward.default: gelu_backward,
    aten.silu.default: lambda x: x * x.sigmoid(),
    aten.silu_backward.default: silu_backward,
    aten.tanh_backward.default: lambda dy, y: dy * (1 - y * y),
    aten.sigmoid_backward.default: lambda dy, y: dy * y * (1 - y),
    aten.threshold_backward.default: lambda dy, x, least: torch.where(x <= least, 0.0, dy),  # NaN: dy, as torch does
    aten.pow.Tensor_Scalar: lambda x, power: x * x if power == 2 else NotImplemented,
    aten.ones_like.default: ones_like,
    aten.rsub.Scalar: lambda x, other, alpha=1: NotImplemented if alpha != 1 else -x + other,
    aten.mean.dim: mean,
    aten.mean.default: lambda x, dtype=None: NotImplemented if dtype else x.sum() * (1 / x.numel()),
    aten.sum.default: sum_of_all,
    aten.sum.dim_IntList: keep_dims(lambda x, dims: x.sum(dims, keepdim=True)),
    aten.amax.default: keep_dims(lambda x, dims: x.amax(dims, keepdim=True)),
    aten.addmm.default: lambda bias, a, b, **factors: NotImplemented if factors else a @ b + bias,
    aten.baddbmm.default: baddbmm,
}
DECOMPOSITIONS = {operator: or_torch(steps) for operator, steps in STEPS.items()}
