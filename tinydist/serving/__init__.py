"""Serving: many people ask at once, and what is scarce is the memory of what was said.

    request.py     what is asked, and the sequences that are written for it
    blocks.py      the cache's memory in blocks: who has which, shared, copied on write, found again
    scheduler.py   who waits, who runs, what a pass computes
    policies.py    who is next: static batches, Orca, continuous batching

In reading order.
"""

from .blocks import BlockPool, BlockTable, OutOfBlocks
from .policies import Continuous, Orca, Static
from .request import Request, Sequence, Served
from .scheduler import Policy, Scheduler, Step

__all__ = [
    "BlockPool",
    "BlockTable",
    "Continuous",
    "Orca",
    "OutOfBlocks",
    "Policy",
    "Request",
    "Scheduler",
    "Sequence",
    "Served",
    "Static",
    "Step",
]
