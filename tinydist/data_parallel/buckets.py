"""Gradient buckets: gradients that are reduced together, as views of one flat tensor.

    parameters   embedding   layer 0   layer 1   head
    ready last <------------------------------- ready first in backward
    buckets          [   2   ] [    1    ] [  0  ]        filled, and sent, from the last parameter on

Small buckets start early and pay a latency each; large ones start late. PyTorch's are 25 MiB, the first one 1 MiB.
A gradient has the dtype of its parameter, or what ``parameter.grad_dtype`` says.
Source: Li et al., PyTorch Distributed, 2020, section 3.2.3 and 4.2.
"""

import torch

from ..annotate import purpose
from ..rules import amount, each_of, must, rate, several, validate

MIB = 2**20


@validate(parameters=each_of(torch.Tensor))
class Bucket:
    """A bucket: ``flat`` holds the gradients of ``parameters``; ``missing`` are those not yet computed."""

    def __init__(self, parameters):
        self.parameters = parameters
        with purpose("gradients"):
            self.flat = torch.zeros(sum(p.numel() for p in parameters), **kind_of(parameters[0]))
        parts = self.flat.split([p.numel() for p in parameters])
        self.views = {p: part.view_as(p) for p, part in zip(parameters, parts)}
        self.missing = set(parameters)

    def take(self, parameter):
        """Put its gradient into the bucket; ``parameter.grad`` becomes a view of it. Copies only if needed."""
        view = self.views[parameter]
        if parameter.grad is None:
            view.zero_()
        elif parameter.grad is not view:
            view.copy_(parameter.grad)
            parameter.grad = view
        self.missing.discard(parameter)

    def reset(self):
        self.missing = set(self.parameters)


@validate(parameters=several, first=amount)
def in_buckets(parameters, size=25 * MIB, first=MIB):
    """Buckets for ``parameters``, in the reverse of their order. Each takes them until it has ``size`` bytes.

    The first one, which waits for nothing, takes ``first`` if that is less. Gradients in a bucket have one dtype and
    device: where parameters of several kinds alternate, each kind fills buckets of its own.
    """
    if not rate(size):
        raise ValueError(f"buckets: bucket size must be > 0 bytes, got {size}")
    parameters = must("in_buckets", "parameters", each_of(torch.Tensor, 0), list(parameters))
    full, filling = [], {}  # kind -> parameters; the kind that has got the last one is last
    for parameter in reversed(parameters):
        kind = tuple(kind_of(parameter).values())
        bucket = filling.pop(kind, []) + [parameter]
        if sum(p.numel() * kind[0].itemsize for p in bucket) >= (size if full else min(first, size)):
            full.append(bucket)
        else:
            filling[kind] = bucket
    return [Bucket(bucket) for bucket in [*full, *filling.values()]]


def kind_of(parameter):
    """Dtype and device of its gradient."""
    return {"dtype": parameter.grad_dtype or parameter.dtype, "device": parameter.device}
