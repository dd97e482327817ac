"""Uneven inputs: a rank that has run out of batches shadows the collectives of the ranks that have not.

    rank 0    batch 0    batch 1    batch 2
    rank 1    batch 0    batch 1    zeros        joined: weight 0 in the mean, the others' weights grow
                                    ^ mean over rank 0 alone

At each step an all-reduce of one number counts the ranks that still have batches. At the end all ranks get the model of
a rank that joined last. Source: Li et al. 2020 on uneven inputs; torch.distributed.algorithms.join.
"""

from contextlib import contextmanager

import torch
import torch.distributed as dist

from ..collectives.agreement import broadcast_all
from ..rules import validate
from .ddp import DDP


@validate(ddp=DDP)
@contextmanager
def join(ddp):
    """Context for training on uneven inputs: ``with join(ddp): for batch in my_batches: ...``"""
    if ddp.find_unused_parameters or ddp.static_graph:
        raise ValueError(
            "join: a rank without a batch cannot say which parameters are used; find_unused_parameters must be False"
        )
    join = Join(ddp)
    counting = ddp.register_forward_pre_hook(join.before_forward)
    try:
        yield
        join.answer_the_others()
    finally:
        counting.remove()
        ddp.reducer.share = 1 / dist.get_world_size(ddp.group)


class Join:
    def __init__(self, ddp):
        self.ddp, self.reducer, self.steps = ddp, ddp.reducer, 0
        self.device = ddp.reducer.buckets[0].flat.device

    def before_forward(self, *_):
        if self.ddp.require_backward_grad_sync and torch.is_grad_enabled():
            self.steps += 1
            self.reducer.share = self._share_of_those_left(1)

    def _share_of_those_left(self, here):
        """1 / number of ranks that have a batch; 0 if none has. ``here``: 1 or 0."""
        left = torch.tensor([float(here)], device=self.device)
        dist.all_reduce(left, group=self.ddp.group)
        return 1 / left.item() if left.item() else 0.0

    def answer_the_others(self):
        while share := self._share_of_those_left(0):
            self.reducer.rebuild_buckets()
            if self.ddp.training:
                broadcast_all(self.ddp.module.buffers(), group=self.ddp.group)
            for bucket in self.reducer.buckets:
                bucket.flat.zero_()
                self.reducer.hook(bucket, share, self.ddp.group)()
            self.reducer.rebuild_due = self.reducer.learning
        self._take_the_last_model()

    def _take_the_last_model(self):
        p = dist.get_world_size(self.ddp.group)
        last = torch.tensor([self.steps * p + dist.get_rank(self.ddp.group)], device=self.device)
        dist.all_reduce(last, dist.ReduceOp.MAX, group=self.ddp.group)
        module, root = self.ddp.module, last.item() % p
        broadcast_all([*module.parameters(), *module.buffers()], root, self.ddp.group)
