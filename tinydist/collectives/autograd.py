"""Differentiable collectives: each has a conjugate (adjoint) collective, which runs in backward.

    forward           backward              The loss of any rank may depend on the elements of every rank. Backward
    broadcast         reduce                gives the gradient of the sum of all ranks' losses.
    reduce            broadcast
    scatter           gather                The rule: forward is a matrix of zeros and ones over the elements of all
    gather            scatter               ranks, and backward is its transpose. A copy becomes a sum, a sum becomes
    all_gather        reduce_scatter        a copy, and a part that went there comes back as a gradient.
    reduce_scatter    all_gather
    all_reduce        all_reduce
    all_to_all        all_to_all

So backward sends what forward sends. All ranks of the group call forward, and all must run backward. ``src`` and
``dst`` are ranks of the world; parts are equal.
Source: Hewett and Grady, A Linear Algebraic Approach to Model Parallelism in Deep Learning, 2020.
"""

from functools import partial

import torch
import torch.distributed as dist
from torch.autograd import Function

from ..rules import each_of, number, validate, whole
from .messages import place


@validate(tensor=torch.Tensor, src=whole, group=dist.ProcessGroup)
def broadcast(tensor, src=0, group=None):
    """A new tensor: that of ``src``. Every rank passes one of its shape."""
    return Conjugates.apply(tensor, partial(copied, root=src, group=group), partial(summed_on, root=src, group=group))


@validate(tensor=torch.Tensor, dst=whole, group=dist.ProcessGroup)
def reduce(tensor, dst=0, group=None):
    """A new tensor: the sum on ``dst``, zeros elsewhere."""
    return Conjugates.apply(tensor, partial(summed_on, root=dst, group=group), partial(copied, root=dst, group=group))


@validate(tensor=torch.Tensor, src=whole, group=dist.ProcessGroup)
def scatter(tensor, src=0, dim=0, group=None):
    """This rank's part, along ``dim``, of ``src``'s tensor. Every rank passes one of its shape."""
    where = {"root": src, "dim": dim, "group": group}
    return Conjugates.apply(tensor, partial(part_of_one, **where), partial(joined_on, **where))


@validate(tensor=torch.Tensor, dst=whole, group=dist.ProcessGroup)
def gather(tensor, dst=0, dim=0, group=None):
    """All ranks' tensors joined along ``dim``, in their order, on ``dst``; zeros elsewhere."""
    where = {"root": dst, "dim": dim, "group": group}
    return Conjugates.apply(tensor, partial(joined_on, **where), partial(part_of_one, **where))


@validate(tensor=torch.Tensor, group=dist.ProcessGroup)
def all_gather(tensor, dim=0, group=None):
    """All ranks' tensors joined along ``dim``, in their order."""
    where = {"dim": dim, "group": group}
    return Conjugates.apply(tensor, partial(joined, **where), partial(part_of_sum, **where))


@validate(tensor=torch.Tensor, group=dist.ProcessGroup)
def reduce_scatter(tensor, dim=0, group=None):
    """This rank's part, along ``dim``, of the sum."""
    where = {"dim": dim, "group": group}
    return Conjugates.apply(tensor, partial(part_of_sum, **where), partial(joined, **where))


@validate(tensor=torch.Tensor, group=dist.ProcessGroup)
def all_reduce(tensor, group=None):
    """A new tensor: the sum."""
    both = partial(summed, group=group)
    return Conjugates.apply(tensor, both, both)


@validate(tensor=torch.Tensor, input_split_sizes=each_of(whole), output_split_sizes=each_of(whole))
@validate(group=dist.ProcessGroup)
def all_to_all(tensor, input_split_sizes=None, output_split_sizes=None, group=None):
    """The first ``input_split_sizes[0]`` rows go to rank 0, and so on; ``output_split_sizes[r]`` come from rank r.
    None: as many for each."""
    there = partial(exchanged, sent=input_split_sizes, received=output_split_sizes, group=group)
    back = partial(exchanged, sent=output_split_sizes, received=input_split_sizes, group=group)
    return Conjugates.apply(tensor, there, back)


class Conjugates(Function):
    """``there(tensor)`` forward, ``back(gradient)`` backward; and backward can be differentiated again."""

    @staticmethod
    def forward(ctx, tensor, there, back):
        ctx.there, ctx.back = there, back
        return there(tensor.contiguous())

    @staticmethod
    def backward(ctx, gradient):
        return Conjugates.apply(gradient, ctx.back, ctx.there), None, None


# Both sides of the pairs, as functions that leave their tensor as it is.


def copied(tensor, root, group):
    tensor = tensor.clone()
    dist.broadcast(tensor, root, group)
    return tensor


def summed_on(tensor, root, group):
    tensor = tensor.clone()
    dist.reduce(tensor, root, group=group)
    return tensor if dist.get_rank() == root else torch.zeros_like(tensor)


def summed(tensor, group):
    tensor = tensor.clone()
    dist.all_reduce(tensor, group=group)
    return tensor


def joined(tensor, dim, group):
    parts = [torch.empty_like(tensor) for _ in range(place(group)[1])]
    dist.all_gather(parts, tensor, group)
    return torch.cat(parts, along(tensor, dim))


def joined_on(tensor, root, dim, group):
    parts = [torch.zeros_like(tensor) for _ in range(place(group)[1])]
    dist.gather(tensor, parts if dist.get_rank() == root else None, root, group)
    return torch.cat(parts, along(tensor, dim))


def part_of_sum(tensor, dim, group):
    parts = equal_parts(tensor, dim, group)
    output = torch.empty_like(parts[0])
    dist.reduce_scatter(output, parts, group=group)
    return output


def part_of_one(tensor, root, dim, group):
    parts = equal_parts(tensor, dim, group)
    output = torch.empty_like(parts[0])
    dist.scatter(output, parts if dist.get_rank() == root else None, root, group)
    return output


def exchanged(tensor, sent, received, group):
    rows = tensor.shape[0] if received is None else sum(received)
    output = tensor.new_empty(rows, *tensor.shape[1:])
    dist.all_to_all_single(output, tensor, received, sent, group)
    return output


def equal_parts(tensor, dim, group):
    rank, p = place(group)
    if tensor.shape[along(tensor, dim)] % p:
        sizes = f"dim {dim} of shape {list(tensor.shape)}"
        raise ValueError(f"{sizes} must be divisible by the number of ranks ({p}) (rank {rank})")
    return [part.contiguous() for part in tensor.chunk(p, dim)]


def along(tensor, dim):
    """``dim``, once it is known to be one of the tensor's."""
    if not (number(dim) and dim in range(-tensor.ndim, tensor.ndim)):
        raise ValueError(f"dim is out of range for a tensor of shape {list(tensor.shape)}, got {dim!r}")
    return int(dim)
