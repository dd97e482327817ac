"""Dropout on several ranks: which random numbers must be the same, and which must differ.

    what all ranks compute alike     the same        else what should be copies of one number differ from rank to rank
    what is dealt out                different       else channel i of every rank is dropped together: fewer patterns

All ranks of the group begin with one seed, and draw the same. For what is dealt out, ``Tracker.own`` gives each a
stream of its own for a while: its seed is drawn from the common stream, and the rank is added. So nothing is kept
beside the common stream, which goes on as if nobody had been away; whoever restores that (recomputation does) restores
both. Megatron-LM keeps two states, begins at seed and at seed + 2718 + rank, and restores two.
Source: Shoeybi et al., Megatron-LM, 2019, section 3; megatron/core/tensor_parallel/random.py.
"""

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses import FakeTensor

from ..rules import takes

CPU = torch.device("cpu")


@takes(group=dist.ProcessGroup)
class Tracker:
    def __init__(self, group=None):
        self.rank = dist.get_rank(group)

    @contextmanager
    def own(self, device=CPU):
        """While this lasts, this rank's random numbers are its own."""
        drawn = torch.randint(2**62, ())
        seed = 0 if isinstance(drawn, FakeTensor) else drawn.item()  # fake numbers are not known, nor needed
        with torch.random.fork_rng([] if device == CPU else [device]):
            torch.manual_seed(seed + self.rank)
            yield


@takes(dropout=nn.Dropout, tracker=Tracker)
class OwnDropout(nn.Module):
    """``dropout`` of what is this rank's alone."""

    def __init__(self, dropout, tracker):
        super().__init__()
        self.dropout, self.tracker = dropout, tracker

    p = property(lambda self: self.dropout.p)

    def forward(self, x):
        if not (self.training and self.p):
            return x
        with self.tracker.own(x.device):
            return self.dropout(x)
