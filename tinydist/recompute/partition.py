"""Partitioned activation checkpoints (ZeRO-R's P_a): each tensor-parallel rank keeps 1/t of an input.

    input, the same on t ranks       x x x x | x x x x | x x x x | x x x x
    kept by rank                        0         1         2         3          all-gathered before backward

Tensor-parallel ranks have the same input [B, T, D] of a block, so t - 1 of t copies are for nothing (sequence
parallelism has no copies to begin with). An all-gather of the input for each recomputed run is its cost.

Source: Rajbhandari et al. 2020, ZeRO, section 6.1.
"""

import torch.distributed as dist
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from .. import torch_internals  # noqa: F401  (names of torch 2.13 in 2.12)
from ..annotate import purpose


class Partitioned(saved_tensors_hooks):
    """For ``recompute(..., keep=Partitioned(group))``. The inputs must be the same on all ranks of ``group``."""

    def __init__(self, group=None):
        super().__init__(self.shard, self.gather)
        self.group = group

    def shard(self, tensor):
        if isinstance(tensor, nn.Parameter):
            return tensor, None
        rank, ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        size = -(-tensor.numel() // ranks)
        with purpose("activations"):
            mine = tensor.new_zeros(size)  # the last ones are filled up
        own = tensor.detach().reshape(-1)[rank * size : (rank + 1) * size]
        mine[: len(own)] = own
        return mine, tensor.shape

    def gather(self, kept):
        mine, shape = kept
        if shape is None:
            return mine
        with purpose("activations"):
            whole = mine.new_empty(len(mine) * dist.get_world_size(self.group))
        dist.all_gather_single(whole, mine, group=self.group)
        return whole[: shape.numel()].view(shape)
