"""Tensor-parallel inference, for memory and latency, and replica routing, for throughput.

    tensor parallel    rank 0   heads 0 1, keys 0 | half of each MLP        all ranks compute each pass together
                       rank 1   heads 2 3, keys 1 | the other half
    replicas           a router sends each request to one of several independent engines

Tensor parallel, the cache is sharded by KV heads: a block costs each rank 1/t of its bytes (not less than one head's).
Block tables and policies are the same on all ranks, which see the same requests and decide alike: only the model
communicates. For each token that is computed, each of t ranks sends

    (2 layers + 1) 2 (t-1)/t D + (t-1) ceil(V/t) elements     an all-reduce after attention, MLP, embedding; the logits

A replica that has a prompt's first block in its prefix cache need not compute it, so requests may be routed by prefix;
or to the least loaded replica. The two goals conflict.

Sources: Pope et al. 2022, Efficiently Scaling Transformer Inference, section 3; Kwon et al. 2023, PagedAttention,
section 4.6 (one scheduler's tables for all ranks); Zheng et al. 2024, SGLang, appendix A.4 (routing by prefix).
"""

from itertools import count as numbers
from zlib import crc32

import torch
import torch.distributed as dist

from ..attention import Decoder, DecoderConfig
from ..rules import count, each_of, one_of, validate
from ..tensor_parallel import shard
from .engine import LLMEngine
from .request import Request, RequestState


@validate(model=Decoder, group=dist.ProcessGroup)
def tensor_parallel_engine(model, group=None, **options):
    """This rank's shard of a tensor-parallel ``LLMEngine``, with its ``options``: ``model`` is sharded in place.

    All ranks of the group must add the same requests in the same order, and step together: then all outputs agree.
    """
    return LLMEngine(shard(model, group, gather_logits=True), **options)


@validate(config=DecoderConfig, ranks=count, dtype=torch.dtype)
def bytes_sent_per_token(config, ranks, dtype=torch.float32):
    """By each rank."""
    reduced = (2 * config.layers + 1) * 2 * (ranks - 1) / ranks * config.dim
    gathered = (ranks - 1) * -(-config.vocab_size // ranks)
    return (reduced + gathered) * dtype.itemsize


ROUTES = "in turn", "least left", "same prefix"


@validate(engines=each_of(LLMEngine), route=one_of(ROUTES))
class Replicas:
    """A router over several engines, with the interface of one: ``add``, ``step``, ``cancel``, ``run`` are those of an
    ``LLMEngine``.

    route:  "in turn"; "least left", to the engine with the fewest tokens still to compute; "same prefix", by a hash of
            the first block of tokens.
    """

    def __init__(self, engines, route="least left"):
        self.engines, self.route = list(engines), route
        self.added, self.engine_of = numbers(), {}

    @property
    def idle(self):
        return all(each.idle for each in self.engines)

    @validate(request=Request)
    def add(self, request):
        """Queue it at one of the engines; returns its ``RequestState``."""
        engine = self.engines[self.choose(request)]
        state = engine.add(request)
        self.engine_of[state] = engine
        return state

    def choose(self, request):
        """The index of an engine."""
        if self.route == "in turn":
            return next(self.added) % len(self.engines)
        if self.route == "least left":
            return min(range(len(self.engines)), key=lambda i: left(self.engines[i]))
        first = request.prompt[: self.engines[0].pool.block_size]
        return crc32(f"{request.cache_salt} {first}".encode()) % len(self.engines)  # the same in every process

    @validate(state=RequestState)
    def cancel(self, state):
        if state in self.engine_of:  # not yet finished
            self.engine_of.pop(state).cancel(state)

    def step(self):
        """Run a pass of each engine that is not idle. Returns the generated tokens, as (sequence, token)."""
        written = [one for each in self.engines if not each.idle for one in each.step()]
        self.engine_of = {state: engine for state, engine in self.engine_of.items() if not state.finished}
        return written

    run = LLMEngine.run


def left(engine):
    """Tokens that it has still to compute, if no output stops early."""
    sequences = *engine.scheduler.waiting, *engine.scheduler.running
    return sum(each.request.longest - each.num_computed_tokens for each in sequences)
