"""All-to-all in two halves: it is started, other work runs, it is finished. Backward as well, in reverse.

    forward     start(rows)   shared expert ...   finish(rows)
    backward    finish        its backward ...    start             finish's backward starts the conjugate all-to-all,
                                                                    and start's waits for it

Autograd runs backward in the reverse order of forward, so what lay between the two halves overlaps both times.
Rows are sent in blocks, one for each rank, of any sizes; a rank's own block is copied.
"""

import torch
import torch.distributed as dist
from torch._subclasses import FakeTensor
from torch.autograd import Function

from ..annotate import purpose

alone = 0, 1


def place(group=None):
    """(this rank, ranks) of the group. Without a process group one rank is alone."""
    return (dist.get_rank(group), dist.get_world_size(group)) if dist.is_initialized() else alone


class AllToAll:
    """One of them: ``sent[r]`` rows go to rank r of the group, ``received[r]`` come from it."""

    def __init__(self, sent, received, group=None):
        self.sent, self.received, self.group = list(sent), list(received), group
        self.work = self.arriving = None
        self.meanwhile = None  # called in backward, before it waits

    def start(self, rows):
        """The rows, under way: to be given to ``finish``."""
        if len(rows) != sum(self.sent):
            raise RuntimeError(
                f"AllToAll: {len(rows)} rows, but {self.sent} are to be sent (rank {place(self.group)[0]})"
            )
        return Start.apply(rows, self)

    def finish(self, under_way):
        """What has come from all ranks."""
        return Finish.apply(under_way, self)

    def back(self):
        """Each row returns to where it came from."""
        return AllToAll(self.received, self.sent, self.group)

    def issue(self, rows, sent, received):
        if place(self.group) == alone:
            return rows.view_as(rows)
        with purpose("communication"):
            arriving = rows.new_empty(sum(received), *rows.shape[1:])
        self.work = dist.all_to_all_single(arriving, rows.contiguous(), received, sent, self.group, async_op=True)
        return arriving

    def wait(self):
        if self.work is not None:
            self.work.wait()
            self.work = None


class Start(Function):
    @staticmethod
    def forward(ctx, rows, exchange):
        ctx.exchange = exchange
        exchange.arriving = exchange.issue(rows, exchange.sent, exchange.received)
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx, gradient):
        if ctx.exchange.meanwhile:
            ctx.exchange.meanwhile()
        ctx.exchange.wait()
        return gradient, None


class Finish(Function):
    @staticmethod
    def forward(ctx, under_way, exchange):
        ctx.exchange = exchange
        exchange.wait()
        arrived, exchange.arriving = exchange.arriving, None
        return arrived

    @staticmethod
    def backward(ctx, gradient):
        return ctx.exchange.issue(gradient, ctx.exchange.received, ctx.exchange.sent), None


def counts_from_all(counts, group=None):
    """``counts[r]``: a list of whole numbers for rank r, of one length. Returns those that each rank has for this one.
    Fake ranks are assumed to have the same."""
    rank, p = place(group)
    if p == 1:
        return counts
    sent = torch.tensor(counts, device=device_of(group))  # [p, n]
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return [counts[rank]] * p if isinstance(received, FakeTensor) else received.tolist()


def device_of(group):
    return "cuda" if dist.get_backend(group) == "nccl" else "cpu"


def part_of_experts(experts, ranks):
    """How many each of ``ranks`` has."""
    if experts % ranks:
        raise ValueError(f"experts ({experts}) must be divisible by the ranks that share them ({ranks})")
    return experts // ranks
