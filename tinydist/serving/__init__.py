"""Serving: many people ask at once, and what is scarce is the memory of what was said.

    request.py          what is asked, and the sequences that are written for it
    blocks.py           the cache's memory in blocks: who has which, shared, copied on write, found again
    paged_attention.py  queries meet keys where these lie, block by block
    paged_cache.py      a decoder's cache in blocks, and a pass whose tokens lie end to end
    scheduler.py        who waits, who runs, what a pass computes
    policies.py         who is next: static batches, Orca, continuous batching
    sampling.py         the next token: temperature, top-k, top-p
    engine.py           a model that writes for many requests at once
    trace.py            requests to replay, as long as those that people made
    clock.py            what a pass costs on a device; replay.py: a trace served on this clock
    waste.py            where the cache's memory goes
    speculative.py      a small model drafts, a large one verifies
    parallel.py         one engine on several ranks, several engines behind a router
    completions.py      OpenAI's form of a call and of its answer
    front.py            both over HTTP, with Tornado, and imported by its name alone; command.py: tinydist serve

In reading order.
"""

from .blocks import BlockPool, BlockTable, OutOfBlocks
from .clock import StepCost
from .engine import Engine
from .paged_attention import paged_attention
from .paged_cache import PagedCaches
from .parallel import Replicas, bytes_sent_a_row, tensor_parallel_engine
from .policies import Continuous, Orca, Static
from .replay import Replay, replay
from .request import Request, Sequence, Served
from .scheduler import Policy, Scheduler, Step
from .speculative import acceptance, expected_tokens, speculate, speedup, verify
from .trace import ALPACA, SHAREGPT, Ask, Lengths, make_trace
from .waste import expected_waste, memory_of, waste_in_blocks, waste_reserved

__all__ = [
    "ALPACA",
    "SHAREGPT",
    "Ask",
    "BlockPool",
    "BlockTable",
    "Continuous",
    "Engine",
    "Lengths",
    "Orca",
    "OutOfBlocks",
    "PagedCaches",
    "Policy",
    "Replay",
    "Replicas",
    "Request",
    "Scheduler",
    "Sequence",
    "Served",
    "Static",
    "Step",
    "StepCost",
    "acceptance",
    "bytes_sent_a_row",
    "expected_tokens",
    "expected_waste",
    "make_trace",
    "memory_of",
    "paged_attention",
    "replay",
    "speculate",
    "speedup",
    "tensor_parallel_engine",
    "verify",
    "waste_in_blocks",
    "waste_reserved",
]
