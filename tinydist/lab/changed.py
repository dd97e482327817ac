"""Do the numbers come from what is sent? Ranks of a check are threads, and could as well read a global variable.

So in one world what one rank sends is changed on the way, each number by a factor of its own, for the answer and for
the reference alike: results must follow. Whole numbers stay what they are, and so do a few that are whole, whatever
their dtype: they are counts, sizes or flags, and answers may send them as they like.
"""

from contextlib import contextmanager

import torch
import torch.distributed as dist

from ..simulator.torch_internals import unobserved

FEW = 8  # numbers
IN_PLACE = ("all_reduce", "broadcast", "reduce")  # these write where they read


@contextmanager
def changed_on_the_way():
    """While this lasts, what this rank sends."""
    group = dist.group.WORLD  # this rank's own handle
    post, meet = group._post, group._meet

    def post_changed(name, tensors, *others):
        return post(name, deeply(tensors) if name == "send" else tensors, *others)

    def meet_changed(name, move, alike_everywhere, inputs, *others, **how):
        if name in IN_PLACE:
            for tensor in inputs:
                with unobserved():
                    tensor.data.copy_(changed(tensor))
        else:
            inputs = deeply(inputs)
        return meet(name, move, alike_everywhere, inputs, *others, **how)

    group._post, group._meet = post_changed, meet_changed
    try:
        yield
    finally:
        del group._post, group._meet


def deeply(inputs):
    return changed(inputs) if isinstance(inputs, torch.Tensor) else [deeply(each) for each in inputs]


def changed(tensor):
    """A copy. The factors, from 1/2 to 2, go by the place in the tensor: the same in each that is sent."""
    with unobserved():
        if not tensor.is_floating_point() or (tensor.numel() <= FEW and bool((tensor == tensor.round()).all())):
            return tensor
        factors = 2 ** (2 * torch.rand(tensor.numel(), generator=torch.Generator().manual_seed(1)) - 1)
        return (tensor.detach() * factors.view(tensor.shape)).to(tensor.dtype)
