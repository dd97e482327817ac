"""Tied weights on two stages (such as embedding and head): their gradients are summed.

    rank 0      gradient from the embedding  \\             / both
                                              > exchange <
    rank P-1    gradient from the head       /             \\ both

Each rank has a copy, begun alike, and after each step's gradients both take the same step. Bytes: S each way, for a
parameter of S bytes. Where both stages are on one rank (in a V, or if P = 1) they share the tensor, and autograd adds.
Source: Shoeybi et al., Megatron-LM, 2019; Narayanan et al. 2021.
"""

import torch
import torch.distributed as dist
from torch import nn

from ..collectives.messages import exchange
from ..rules import each_of, validate, whole


@validate(parameter=torch.Tensor, ranks=each_of(whole), group=dist.ProcessGroup)
def sum_tied_gradients(parameter, ranks, group=None):
    """Sum the gradients of ``parameter`` over two ``ranks`` of the group. Other ranks may call it, too."""
    me, here = dist.get_rank(group), set(ranks)
    if len(here) > 2:
        raise ValueError(f"sum_tied_gradients: a tied parameter must be on two ranks, got {sorted(here)} (rank {me})")
    if me not in here or len(here) == 1:
        return
    (other,) = here - {me}
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    add_that_of(other, parameter.grad, group)


def add_that_of(other, tensor, group=None):
    """To ``tensor``, in place. Both ranks call it."""
    theirs = torch.empty_like(tensor)
    exchange(tensor.contiguous(), other, theirs, other, group)
    tensor += theirs


def untied(stages):
    """Untie shared parameters into one copy per stage: (first stage, parameter, last stage, copy) of each.

    The copy has the attributes of the first, so it knows its cut.
    """
    homes, found = {}, []
    for number, stage in enumerate(stages):
        copies = {}
        for name, parameter in list(stage.named_parameters(remove_duplicate=False)):
            home = homes.setdefault(parameter, number)
            if home != number:
                if parameter not in copies:
                    copies[parameter] = copy_of(parameter)
                    found.append((home, parameter, number, copies[parameter]))
                owner, _, own = name.rpartition(".")
                setattr(stage.get_submodule(owner), own, copies[parameter])
    return found


def copy_of(parameter):
    copy = nn.Parameter(parameter.detach().clone(), parameter.requires_grad)
    copy.__dict__.update(parameter.__dict__)
    return copy
