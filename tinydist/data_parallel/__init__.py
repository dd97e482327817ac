"""Data parallelism: every rank holds the whole model and processes a shard of the batch.

data_parallel.py       DP (nn.DataParallel): the model is replicated from one rank in every step
parameter_server.py    one rank keeps the model, the others compute gradients
averaging.py           every rank holds the model; gradients are averaged after backward
buckets.py             gradients that travel together
hooks.py               communication hooks: how a full bucket is reduced
reducer.py             bucketed all-reduce overlapped with backward
ddp.py                 DDP: a module whose gradients a Reducer averages
unused.py              unused parameters: those that get no gradient
join.py                uneven inputs (torch: Join)
batches.py             distributed sampler, batch sharding, loss weights
"""

from . import hooks
from .averaging import average_each, average_flat
from .batches import Sampler, sample_weight, shard_batch
from .buckets import Bucket, in_buckets
from .data_parallel import DataParallel
from .ddp import DDP
from .join import join
from .unused import unused

__all__ = [
    "DDP",
    "Bucket",
    "DataParallel",
    "Sampler",
    "average_each",
    "average_flat",
    "hooks",
    "in_buckets",
    "join",
    "sample_weight",
    "shard_batch",
    "unused",
]
