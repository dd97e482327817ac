"""The kernels of torch.nn.SyncBatchNorm, which torch has for GPUs only: here from operators that the host has.

    forward     stats: mean, 1 / std of a rank's batch -> gathered, weighted by count -> elemt: (x - mean) / std
    backward    reduce: sum of dy, sum of dy (x - mean) -> summed over ranks -> elemt: the gradient of x

Source: Ioffe and Szegedy 2015, Batch Normalization, section 3 (the formulas of its backward).
"""

import torch


def channels(vector, like):
    """[C] -> [1, C, 1, ...]"""
    return vector.view(1, -1, *[1] * (like.dim() - 2))


def others(x):
    """All dims but that of the channels."""
    return [dim for dim in range(x.dim()) if dim != 1]


def batch_norm_stats(input, eps):
    x = input.float() if input.dtype.itemsize == 2 else input
    variance, mean = torch.var_mean(x, others(x), correction=0)
    return mean, torch.rsqrt(variance + eps)


def batch_norm_gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps, counts):
    """``mean``, ``invstd``: [ranks, C]."""
    whole, weights = counts.sum(), counts.unsqueeze(1)
    of_all = (mean * weights).sum(0) / whole
    squares = ((invstd**-2 - eps + (mean - of_all) ** 2) * weights).sum(0)
    if running_mean is not None:
        running_mean.lerp_(of_all.to(running_mean.dtype), momentum)
        running_var.lerp_((squares / (whole - 1)).to(running_var.dtype), momentum)
    return of_all, torch.rsqrt(squares / whole + eps)


def batch_norm_elemt(input, weight, bias, mean, invstd, eps):
    scale = invstd if weight is None else invstd * weight
    shifted = (input - channels(mean, input)) * channels(scale, input)
    return (shifted if bias is None else shifted + channels(bias, input)).to(input.dtype)


def batch_norm_backward_reduce(grad_out, input, mean, invstd, weight, input_g, weight_g, bias_g):
    sum_dy = grad_out.to(mean.dtype).sum(others(input))
    sum_dy_xmu = (grad_out * (input - channels(mean, input))).to(mean.dtype).sum(others(input))
    return sum_dy, sum_dy_xmu, sum_dy_xmu * invstd if weight_g else None, sum_dy if bias_g else None


def batch_norm_backward_elemt(grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count):
    whole = count.sum()
    along = channels(invstd**2 * sum_dy_xmu / whole, input) * (input - channels(mean, input))
    scale = invstd if weight is None else invstd * weight
    return ((grad_out - channels(sum_dy / whole, input) - along) * channels(scale, input)).to(input.dtype)


KERNELS = {
    function.__name__: function
    for function in (
        batch_norm_stats,
        batch_norm_gather_stats_with_counts,
        batch_norm_elemt,
        batch_norm_backward_reduce,
        batch_norm_backward_elemt,
    )
}
