"""Data parallel: every rank has the model, and a part of the batch.

replicate.py           DP: one rank holds the model, the others help for one step
parameter_server.py    one rank keeps the model, the others compute gradients
averaging.py           every rank holds the model; gradients are averaged after backward
buckets.py             gradients that travel together
hooks.py               what becomes of a full bucket
ddp.py                 DDP: buckets are averaged while backward goes on
unused.py              which parameters take no part in the loss
join.py                ranks with fewer batches than others
batches.py             which samples a rank sees, and how much its loss counts
"""

from . import hooks
from .averaging import average_each, average_flat
from .batches import Sampler, share, weight
from .buckets import Bucket, in_buckets
from .ddp import DDP
from .join import join
from .replicate import DataParallel
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
    "share",
    "unused",
    "weight",
]
