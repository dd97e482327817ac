"""Do the numbers come from what is sent? Ranks of a check are threads, and could as well read a global variable.

So in one world what one rank sends is changed on the way, each number by a factor of its own, for the answer and for
the reference alike: results must follow. Whole numbers stay what they are, and so do a few that are whole, whatever
their dtype: they are counts, sizes or flags, and answers may send them as they like.
"""

from contextlib import contextmanager

import torch
import torch.distributed as dist

from ..torch_internals import unobserved

FEW = 8  # numbers
IN_PLACE = ("all_reduce", "broadcast", "reduce")  # these write where they read


@contextmanager
def changed_on_the_way():
    """While this lasts, what this rank sends, in whatever group: one that it makes meanwhile, too."""
    mine = dist.group.WORLD  # this rank's own handle
    handles = type(mine)
    post, meet = handles._post, handles._meet

    def is_mine(group):
        return group.simulation is mine.simulation and group.owner == mine.owner

    def post_changed(group, name, tensors, *others):
        return post(group, name, deeply(tensors) if name == "send" and is_mine(group) else tensors, *others)

    def meet_changed(group, name, move, alike_everywhere, inputs, *others, **how):
        if is_mine(group) and name in IN_PLACE:
            for tensor in inputs:
                with unobserved():
                    tensor.data.copy_(changed(tensor))
        elif is_mine(group):
            inputs = deeply(inputs)
        return meet(group, name, move, alike_everywhere, inputs, *others, **how)

    handles._post, handles._meet = post_changed, meet_changed
    try:
        yield
    finally:
        del handles._post, handles._meet  # those of its base are there again


def deeply(inputs):
    return changed(inputs) if isinstance(inputs, torch.Tensor) else [deeply(each) for each in inputs]


def changed(tensor):
    """A copy. The factors, from 1/2 to 2, go by the place in the tensor: the same in each that is sent."""
    with unobserved():
        if not tensor.is_floating_point() or (tensor.numel() <= FEW and bool((tensor == tensor.round()).all())):
            return tensor
        factors = 2 ** (2 * torch.rand(tensor.numel(), generator=torch.Generator().manual_seed(1)) - 1)
        return (tensor.detach() * factors.view(tensor.shape)).to(tensor.dtype)
