"""nn.DataParallel over ranks: in every step the model is replicated from the root, and gradients are reduced to it.

               rank 0 (root)                              ranks 1 ... p-1
    forward    broadcast parameters          ------->     a replica, for this step
               scatter the batch             ------->     rows
               replica(rows)                              replica(rows)
               gather outputs                <-------
               loss
    backward   scatter the outputs' gradient ------->
               reduce parameters' gradients  <-------
               step                                       forget the replica

Each line of backward is the conjugate of one of forward, so autograd writes it. With S bytes of parameters a star of
p-1 replicas moves 2(p-1) S and all inputs and outputs through the root in each step; and the root alone holds
gradients, optimizer states, and all outputs. Every rank makes the same calls; what the others make of their output,
zeros that take no memory, counts nothing: ``loss = loss_of(output) if model.is_root else output.sum()``.
Source: Li et al., PyTorch Distributed, 2020, section 2.2; torch.nn.parallel.DataParallel.
"""

from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.func import functional_call

from ..annotate import purpose
from ..collectives import autograd, star
from ..collectives.autograd import Conjugates
from ..rules import validate, whole


@validate(module=nn.Module, root=whole, group=dist.ProcessGroup)
class DataParallel(nn.Module):
    """``module`` is stored on rank ``root``; the others free their copy. The ranks must divide the batch size.

    Only the root's output, loss and step mean anything: ``if rank == root: optimizer.step()``.
    """

    def __init__(self, module, root=0, group=None):
        super().__init__()
        self.root, self.group = root, group
        self.module, self.is_root = module, dist.get_rank() == root
        if not self.is_root:
            self._give_up_the_copy()

    def _tensors(self):
        """Name -> parameter or buffer; a tied one has one name."""
        return dict(self.module.named_parameters()) | dict(self.module.named_buffers())

    def _give_up_the_copy(self):
        self.shapes = {name: tensor.shape for name, tensor in self._tensors().items()}
        for tensor in self._tensors().values():
            tensor.data = tensor.data.new_empty(0)

    @validate(rows=torch.Tensor)
    def forward(self, rows, replica=None):
        """The outputs of all ``rows`` of the root, on the root. Others pass rows of the same shape, and get zeros."""
        replica = self.replicate() if replica is None else replica
        mine = autograd.scatter(rows, self.root, group=self.group)
        output = functional_call(self.module, replica, (mine,))
        there = {"root": self.root, "group": self.group}
        whole = Conjugates.apply(output, partial(joined, **there), partial(dealt, shape=output.shape, **there))
        return whole if self.is_root else whole.sum().expand(len(rows), *output.shape[1:])

    def replicate(self):
        """The root's parameters and buffers on every rank: name -> tensor. For inference, once is enough."""
        return {name: self._from_root(name, tensor) for name, tensor in self._tensors().items()}

    def _from_root(self, name, tensor):
        there = {"root": self.root, "group": self.group}
        if not self.is_root:
            with purpose("parameters"):
                tensor = tensor.new_empty(self.shapes[name], requires_grad=tensor.requires_grad)
        return Conjugates.apply(tensor, partial(copied, **there), partial(summed, **there))


# Forward, and its conjugate in backward, for parameters and then for outputs.


def copied(tensor, root, group):
    tensor = tensor.detach()
    star.broadcast(tensor, root, group)
    return tensor


def summed(gradient, root, group):
    gradient = gradient.clone()
    star.reduce(gradient, root, group=group)
    return gradient


def joined(output, root, group):
    """All ranks' rows on the root, none elsewhere."""
    is_root = dist.get_rank() == root
    parts = [torch.empty_like(output) for _ in range(dist.get_world_size(group))] if is_root else None
    dist.gather(output, parts, root, group)
    return torch.cat(parts) if is_root else output.new_empty(0, *output.shape[1:])


def dealt(gradient, shape, root, group):
    """The rows of the root's gradient that belong to this rank's output."""
    mine = gradient.new_empty(shape)
    parts = gradient.chunk(dist.get_world_size(group)) if dist.get_rank() == root else None
    dist.scatter(mine, parts and list(parts), root, group)
    return mine
