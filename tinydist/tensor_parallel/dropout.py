"""Dropout with tensor parallelism: random numbers are shared for replicated activations and differ for sharded ones.

    replicated activations     the same        else copies of one activation differ between ranks
    sharded activations        different       else channel i of every rank is dropped together: fewer patterns

All ranks of the group start from one seed, and draw the same. For sharded activations, ``RNGTracker.fork`` gives each
rank its own stream: the seed is drawn from the common stream, plus the rank. So the common stream is the only state,
and restoring it (as recomputation does) restores both. Megatron-LM keeps two states, seeded with seed and seed + 2718 +
rank, and restores two.
Source: Shoeybi et al., Megatron-LM, 2019, section 3; megatron/core/tensor_parallel/random.py.
"""

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses import FakeTensor

from ..rules import validate

CPU = torch.device("cpu")


@validate(group=dist.ProcessGroup)
class RNGTracker:
    def __init__(self, group=None):
        self.rank = dist.get_rank(group)

    @contextmanager
    def fork(self, device=CPU):
        """Context: random numbers differ between ranks."""
        drawn = torch.randint(2**62, ())
        seed = 0 if isinstance(drawn, FakeTensor) else drawn.item()  # fake numbers are not known, nor needed
        with torch.random.fork_rng([] if device == CPU else [device]):
            torch.manual_seed(seed + self.rank)
            yield


@validate(dropout=nn.Dropout, tracker=RNGTracker)
class ShardedDropout(nn.Module):
    """``dropout`` of sharded activations: a different mask on each rank."""

    def __init__(self, dropout, tracker):
        super().__init__()
        self.dropout, self.tracker = dropout, tracker

    p = property(lambda self: self.dropout.p)

    def forward(self, x):
        if not (self.training and self.p):
            return x
        with self.tracker.fork(x.device):
            return self.dropout(x)
