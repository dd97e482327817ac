"""Uneven inputs: a rank that has run out of batches still answers the collectives of those that have not.

    rank 0    batch 0    batch 1    batch 2
    rank 1    batch 0    batch 1    zeros        joined: its share of the mean is nothing, and the others' grow
                                    ^ mean over rank 0 alone

At each step the ranks count who is left: one all-reduce of one number. In the end all get the model of a rank that was
left last. Source: Li et al. 2020 on uneven inputs; torch.distributed.algorithms.join.
"""

from contextlib import contextmanager

import torch
import torch.distributed as dist

from ..collectives.agreement import broadcast_all
from ..rules import takes
from .ddp import DDP


@takes(ddp=DDP)
@contextmanager
def join(ddp):
    """Train in here on as many batches as this rank has: ``with join(ddp): for batch in mine: ...``"""
    if ddp.find_unused_parameters or ddp.static_graph:
        raise ValueError(
            "join: a rank without a batch cannot say which parameters took part; find_unused_parameters must be False"
        )
    ddp.joined = Joined(ddp)
    try:
        yield
        ddp.joined.answer_the_others()
    finally:
        ddp.joined, ddp.share = None, 1 / dist.get_world_size(ddp.group)


class Joined:
    def __init__(self, ddp):
        self.ddp, self.steps = ddp, 0

    def share_of_those_left(self, here):
        """1 / number of ranks that have a batch; 0 if none has. ``here``: 1 or 0."""
        self.steps += here
        left = torch.tensor([float(here)], device=self.ddp.buckets[0].flat.device)
        dist.all_reduce(left, group=self.ddp.group)
        return 1 / left.item() if left.item() else 0.0

    def answer_the_others(self):
        ddp = self.ddp
        while share := self.share_of_those_left(0):
            ddp.rebuild()
            if ddp.training:
                broadcast_all(ddp.module.buffers(), group=ddp.group)
            for bucket in ddp.buckets:
                ddp.hook(bucket.flat.zero_(), share, ddp.group)()
            ddp.rebuild_due = ddp.learning
        self._take_the_last_model()

    def _take_the_last_model(self):
        p = dist.get_world_size(self.ddp.group)
        last = torch.tensor([self.steps * p + dist.get_rank(self.ddp.group)], device=self.ddp.buckets[0].flat.device)
        dist.all_reduce(last, dist.ReduceOp.MAX, group=self.ddp.group)
        module, root = self.ddp.module, last.item() % p
        broadcast_all([*module.parameters(), *module.buffers()], root, self.ddp.group)
