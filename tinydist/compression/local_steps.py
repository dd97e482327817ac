"""Local steps with an outer optimizer (DiLoCo): every rank trains alone, and once in H steps they agree.

    H steps       of the inner optimizer, on this rank's data: nothing is sent
    then          pseudo-gradient = weights at the last agreement - weights now; its mean over the ranks, one all-reduce
                  the outer optimizer steps from the weights of the last agreement: all ranks have the same again

With H = 1 and SGD on both sides, the outer one with lr=1, it is data parallelism. Sent a step: 2 (p-1)/p 4n / H bytes.
Held besides: a copy of the weights, and the outer momentum.
Source: Douillard et al., DiLoCo, 2023, algorithm 1 (Nesterov momentum 0.9, outer rate 0.7, H = 500); torchft's DiLoCo.
"""

import torch
import torch.distributed as dist

from ..annotate import purpose
from ..data_parallel.averaging import average_flat
from ..rules import count, function, validate


@validate(inner=torch.optim.Optimizer, every=count, outer=function, group=dist.ProcessGroup)
class LocalSteps:
    """``inner`` steps; after each ``every`` steps ranks agree. Without DDP: gradients stay this rank's, and all ranks
    must begin with the same weights, as only their changes are averaged.

    outer:  makes the outer optimizer from a list of tensors; None: SGD(lr=0.7, momentum=0.9, nesterov=True)
    """

    def __init__(self, inner, every, outer=None, group=None):
        self.inner, self.every, self.group, self.steps = inner, every, group, 0
        self.parameters = [p for options in inner.param_groups for p in options["params"]]
        with purpose("optimizer states"):
            self.agreed = [p.detach().clone() for p in self.parameters]
        self.outer = (outer or nesterov)(self.agreed)

    def zero_grad(self):
        self.inner.zero_grad()

    @torch.no_grad()
    def step(self):
        self.inner.step()
        self.steps += 1
        if self.steps % self.every == 0:
            self._agree()

    def _agree(self):
        for agreed, p in zip(self.agreed, self.parameters):
            agreed.grad = agreed - p
        average_flat(self.agreed, self.group)
        self.outer.step()
        self.outer.zero_grad()
        for agreed, p in zip(self.agreed, self.parameters):
            p.copy_(agreed)


def nesterov(tensors):
    return torch.optim.SGD(tensors, lr=0.7, momentum=0.9, nesterov=True)
