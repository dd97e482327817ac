"""A warning for collectives that write into a tensor of a graph: autograd does not see what they do.

    y = x @ weight                 a graph leads to y
    dist.all_reduce(y)             the numbers of y change, and the graph does not
    y.sum().backward()             warns: the gradient passes as if nothing had been sent

Torch warns of it in the same place, of tensors that gloo or NCCL have written ("an autograd kernel was not registered
... this may lead to silently incorrect behavior"): torch/csrc/autograd/autograd_not_implemented_fallback.cpp. Simulated
groups are not called through torch's dispatcher, so that they say it themselves.
"""

import warnings

import torch

from .call_sites import here


class UnseenByAutograd(UserWarning):
    """The lab makes an error of it."""


def warn_in_backward(name, tensors):
    """As torch does: once a gradient passes. Of what carries none, nothing is said."""
    if not torch.is_grad_enabled():
        return
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            site = here()
            tensor.register_hook(lambda gradient: warn(f"{name} at {site}"))


def warn(call):
    text = (
        f"{call} wrote into a tensor that has a graph, and backward passes it. Autograd does not see a collective: the "
        "gradient passes as if nothing had been sent, and saved tensors may have changed. PyTorch warns of the same on "
        'gloo and NCCL ("may lead to silently incorrect behavior"). Call collectives in the forward and the backward '
        "of a torch.autograd.Function, or on a tensor without a graph (detach, no_grad)"
    )
    warnings.warn(text, UnseenByAutograd, stacklevel=3)
