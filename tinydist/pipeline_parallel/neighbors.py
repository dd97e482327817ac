"""The ranks of the stages before and after: what passes between them, and in which group."""

from itertools import pairwise

import torch
import torch.distributed as dist

from ..simulator.torch_internals import device_of_group
from .actions import CHECK, FORWARD, NORM


class Neighbors:
    """``between``, ``group`` and ``upward_group`` are those of a Worker."""

    def __init__(self, schedule, between, group, upward_group):
        self.rank, self.rank_of = dist.get_rank(group), schedule.rank_of
        self.between = between if isinstance(between, dict) else dict.fromkeys(range(1, schedule.stages), between)
        self.group, self.upward_group = group, upward_group

    def connect(self):
        """NCCL joins two ranks at their first message in a group, and neither goes on before both are there.

        In a step a rank posts a receive before it sends what the other makes that message from. So they meet here, in
        an order that is the same on all; and all ranks, as only then two alone may exchange (tied.py).
        """
        if dist.get_backend(self.group) != "nccl":
            return
        for group in (self.group, self.upward_group):
            dist.all_reduce(torch.zeros(1, device=device_of_group(group)), group=group)
        stages = map(self.rank_of.__getitem__, range(len(self.rank_of)))
        for low, high in sorted({tuple(sorted(ends)) for ends in pairwise(stages) if ends[0] != ends[1]}):
            for source, to, group in ((low, high, self.group), (high, low, self.upward_group)):
                nothing = torch.zeros(1, device=device_of_group(group))
                if self.rank == source:
                    dist.isend(nothing, group=group, group_dst=to).wait()
                elif self.rank == to:
                    dist.irecv(nothing, group=group, group_src=source).wait()

    def send(self, tensor, stage):
        there = self.rank_of[stage]
        group = self.group if there > self.rank else self.upward_group
        return dist.isend(tensor, group=group, group_dst=there)

    def receive(self, buffer, stage):
        there = self.rank_of[stage]
        group = self.group if there < self.rank else self.upward_group
        return dist.irecv(buffer, group=group, group_src=there)

    def buffer(self, kind, stage, device):
        """For what a stage receives: squares of the norm, or what passes between it and the one before, or after."""
        if kind in (NORM, CHECK):
            return torch.empty((), device=device)
        return torch.empty_like(self.between[stage if kind == FORWARD else stage + 1], device=device)

    def check_output(self, output, stage):
        like = self.between[stage + 1]
        if output.shape != like.shape or output.dtype != like.dtype:
            raise ValueError(
                f"Worker: stage {stage + 1} receives what `between` says, {like.dtype} {list(like.shape)}, "
                f"but stage {stage} made {output.dtype} {list(output.shape)} (rank {self.rank})"
            )
