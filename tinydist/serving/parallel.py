"""Parallel inference: one model on several ranks, for memory and for time; or several of it, for more requests.

    tensor parallel    rank 0   heads 0 1, keys 0 | half of each MLP        all ranks compute each pass together
                       rank 1   heads 2 3, keys 1 | the other half
    data parallel      a router gives each request to one of several engines, which know nothing of one another

Tensor parallel, the cache is cut with the heads of keys: a block costs each rank 1/t of its bytes (not less than one
head's). Block tables and policies are the same on all ranks, who decide alike, for they know the same: nothing is sent
but what the model sends. Of each row that is computed, each of t ranks sends

    (2 layers + 1) 2 (t-1)/t D + (t-1) ceil(V/t) numbers      an all-reduce behind attention, MLP, embedding; the logits

Of replicas, the one that has a prompt's first block in its prefix cache need not compute it: route by it, and those
that ask alike meet; or to whoever has the least left to do. Each wish is at the cost of the other.

Sources: Pope et al. 2022, Efficiently Scaling Transformer Inference, section 3; Kwon et al. 2023, PagedAttention,
section 4.6 (one scheduler's tables for all ranks); Zheng et al. 2024, SGLang, appendix A.4 (routing by prefix).
"""

from itertools import count as numbers
from zlib import crc32

import torch
import torch.distributed as dist

from ..attention import Decoder, DecoderConfig
from ..rules import count, each_of, one_of, takes
from ..tensor_parallel import shard
from .engine import Engine
from .request import Request, Served


@takes(model=Decoder, group=dist.ProcessGroup)
def tensor_parallel_engine(model, group=None, **options):
    """An ``Engine`` of which this rank has its part: ``model`` is cut in place. ``options`` are those of an ``Engine``.

    All ranks of the group must add the same requests in the same order, and step together: then all write the same.
    """
    return Engine(shard(model, group, gather_logits=True), **options)


@takes(config=DecoderConfig, ranks=count, dtype=torch.dtype)
def bytes_sent_a_row(config, ranks, dtype=torch.float32):
    """By each rank, for each token that is computed."""
    reduced = (2 * config.layers + 1) * 2 * (ranks - 1) / ranks * config.dim
    gathered = (ranks - 1) * -(-config.vocab_size // ranks)
    return (reduced + gathered) * dtype.itemsize


ROUTES = "in turn", "least left", "same prefix"


@takes(engines=each_of(Engine), route=one_of(ROUTES))
class Replicas:
    """Several engines that are asked as one: ``add``, ``step``, ``cancel``, ``run`` are those of an ``Engine``.

    route:  "in turn"; "least left", where the fewest tokens are still to be computed; "same prefix", those whose first
            block of tokens is the same go to the same.
    """

    def __init__(self, engines, route="least left"):
        self.engines, self.route = list(engines), route
        self.added, self.serves = numbers(), {}

    @property
    def idle(self):
        return all(each.idle for each in self.engines)

    @takes(request=Request)
    def add(self, request):
        """Let it wait at one of the engines; returns its ``Served``."""
        engine = self.engines[self.choose(request)]
        served = engine.add(request)
        self.serves[served] = engine
        return served

    def choose(self, request):
        """The number of an engine."""
        if self.route == "in turn":
            return next(self.added) % len(self.engines)
        if self.route == "least left":
            return min(range(len(self.engines)), key=lambda i: left(self.engines[i]))
        first = request.prompt[: self.engines[0].pool.block_size]
        return crc32(f"{request.salt} {first}".encode()) % len(self.engines)  # the same in every process

    @takes(served=Served)
    def cancel(self, served):
        if served in self.serves:  # not yet done
            self.serves.pop(served).cancel(served)

    def step(self):
        """A pass of each that has something to do; what was written, (sequence, token) each."""
        written = [one for each in self.engines if not each.idle for one in each.step()]
        self.serves = {served: engine for served, engine in self.serves.items() if not served.done}
        return written

    run = Engine.run


def left(engine):
    """Tokens that it has still to compute, if no answer stops early."""
    sequences = {*engine.scheduler.waiting, *engine.scheduler.running}
    return sum(each.left + each.request.max_new - len(each.new) - 1 for each in sequences)
