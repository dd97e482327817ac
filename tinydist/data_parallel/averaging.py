"""Gradient averaging after backward: the two simplest forms of data-parallel training.

    average_each    an all-reduce for each parameter: as many latencies
    average_flat    one all-reduce of all gradients in a flat buffer: one latency, and a copy of all of them

Both send 2(p-1)/p of the gradients' bytes per rank, and neither starts before backward has ended: ddp.py does. Every
rank's loss must be a mean over as many samples; else see batches.sample_weight.
"""

import torch
import torch.distributed as dist

from ..annotate import purpose
from ..rules import each_of, must, several, validate


@validate(parameters=several, group=dist.ProcessGroup)
def average_each(parameters, group=None):
    """``parameter.grad`` becomes the mean over the ranks."""
    for parameter in must("average_each", "parameters", each_of(torch.Tensor, 0), list(parameters)):
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= dist.get_world_size(group)


@validate(parameters=several, group=dist.ProcessGroup)
def average_flat(parameters, group=None):
    """``parameter.grad`` becomes the mean over the ranks. All gradients have one dtype."""
    parameters = must("average_flat", "parameters", each_of(torch.Tensor, 0), list(parameters))
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    with purpose("communication"):
        flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat, group=group)
    flat /= dist.get_world_size(group)
    for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients])):
        gradient.copy_(mean.view_as(gradient))
