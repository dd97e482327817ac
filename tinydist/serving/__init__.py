"""Serving: many people ask at once, and what is scarce is the memory of what was said.

    request.py          what is asked, and the sequences that are written for it
    blocks.py           the cache's memory in blocks: who has which, shared, copied on write, found again
    paged_attention.py  queries meet keys where these lie, block by block
    paged_cache.py      a decoder's cache in blocks, and a pass whose tokens lie end to end
    scheduler.py        who waits, who runs, what a pass computes
    policies.py         who is next: static batches, Orca, continuous batching
    sampling.py         the next token: temperature, top-k, top-p
    engine.py           a model that writes for many requests at once

In reading order.
"""

from .blocks import BlockPool, BlockTable, OutOfBlocks
from .engine import Engine
from .paged_attention import paged_attention
from .paged_cache import PagedCaches
from .policies import Continuous, Orca, Static
from .request import Request, Sequence, Served
from .scheduler import Policy, Scheduler, Step

__all__ = [
    "BlockPool",
    "BlockTable",
    "Continuous",
    "Engine",
    "Orca",
    "OutOfBlocks",
    "PagedCaches",
    "Policy",
    "Request",
    "Scheduler",
    "Sequence",
    "Served",
    "Static",
    "Step",
    "paged_attention",
]
