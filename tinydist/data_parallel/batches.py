"""Distributed sampling: which samples each rank processes, and the weight of its loss.

    epoch e:   shuffle all N samples by seed + e, the same on every rank; rank r takes r, r + p, r + 2p ...
               (the first samples come twice if p does not divide N, so that all ranks take as many steps)

A mean over ranks of means over samples is the mean over all samples only if the ranks have as many. If not, multiply
each rank's loss by ``sample_weight``: with n_r of n samples, the mean of p n_r/n loss_r over p ranks is right.
"""

import torch
import torch.distributed as dist

from ..rules import amount, each_of, flag, validate, within
from ..torch_internals import device_of_group


@validate(samples=within(0, 2**31), group=dist.ProcessGroup, shuffle=flag, seed=within(0, 2**62), drop_last=flag)
class Sampler:
    """Indices of this rank's samples, as from torch's DistributedSampler. Call ``set_epoch`` before each epoch."""

    def __init__(self, samples, group=None, shuffle=True, seed=0, drop_last=False):
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        if samples < self.ranks:
            raise ValueError(f"Sampler: fewer samples ({samples}) than ranks ({self.ranks})")
        self.samples, self.shuffle, self.seed, self.drop_last = samples, shuffle, seed, drop_last
        self.epoch = 0

    @validate(epoch=within(0, 2**62))
    def set_epoch(self, epoch):
        """Reshuffles: without it, every epoch has the same order."""
        self.epoch = epoch

    def __len__(self):
        return (self.samples if self.drop_last else self.samples + self.ranks - 1) // self.ranks

    def __iter__(self):
        order = list(range(self.samples))
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(self.samples, generator=generator).tolist()
        whole = len(self) * self.ranks
        order = (order + order[: whole - len(order)])[:whole]
        return iter(order[self.rank :: self.ranks])


@validate(batch=each_of(torch.Tensor), group=dist.ProcessGroup)
def shard_batch(batch, group=None):
    """This rank's rows of each tensor of a global batch. The first ranks get one more, if p does not divide it."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    rows = {len(tensor) for tensor in batch}
    if len(rows) > 1 or min(rows) < ranks:
        raise ValueError(
            f"shard_batch: every tensor must have the same number of rows, at least {ranks}, one per rank; "
            f"got {sorted(rows)} (rank {rank})"
        )
    return [tensor.tensor_split(ranks)[rank] for tensor in batch]


@validate(count=amount, group=dist.ProcessGroup)
def sample_weight(count, group=None):
    """What a rank's mean loss over ``count`` samples (or tokens) is multiplied with, if ranks have different numbers.

    Then the mean of all ranks' gradients is that of the mean over all samples. One all-reduce of one number.
    """
    total = torch.tensor([float(count)], device=device_of_group(group))
    dist.all_reduce(total, group=group)
    if total.item() == 0:
        raise ValueError("sample_weight: no rank has any samples")
    return count * dist.get_world_size(group) / total.item()
