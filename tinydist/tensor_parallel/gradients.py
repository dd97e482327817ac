"""Gradient clipping by the global norm, where some gradients are sharded and some replicated; and full parameters.

    an element on c of t ranks counts 1/c on each               |g|^2 = sum over ranks of sum over parameters |g|^2 / c

Without that, replicated parameters count t times, the norm depends on how many ranks there are, and so does the step.
One all-reduce of one number.
"""

import torch
import torch.distributed as dist
from torch import nn

from ..rules import function, rate, validate
from .cuts import copies_of, cut_of


@validate(model=nn.Module, max_norm=rate, group=dist.ProcessGroup)
@torch.no_grad()
def clip_grad_norm_(model, max_norm, group=None):
    """Clip the global gradient norm of a sharded model to ``max_norm``. Returns the norm before clipping."""
    trained = [parameter for parameter in model.parameters() if parameter.grad is not None]
    wide = torch.promote_types(trained[0].dtype, torch.float32)
    norms = [torch.linalg.vector_norm(each.grad, dtype=wide) for each in trained]
    square = torch.stack([norm**2 / copies_of(each, group) for norm, each in zip(norms, trained)]).sum()
    dist.all_reduce(square, group=group)
    norm = square.sqrt()
    torch._foreach_mul_([each.grad for each in trained], (float(max_norm) / (norm + 1e-6)).clamp(max=1.0))  # as torch
    return norm


@validate(model=nn.Module, group=dist.ProcessGroup, of=function)
@torch.no_grad()
def gathered(model, group=None, of=lambda parameter: parameter):
    """Name -> full parameter, or the full tensor of ``of(parameter)``: ``lambda p: p.grad``. A collective."""
    found = {}
    for name, parameter in model.named_parameters():
        tensor, cut = of(parameter).detach(), cut_of(parameter)
        found[name] = cut.whole(tensor, group) if cut else tensor.clone()
    return found
