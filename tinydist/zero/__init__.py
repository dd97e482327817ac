"""ZeRO: stages 1, 2 and 3 shard the optimizer states, then also the gradients, then also the parameters (FSDP).

zero1.py             stage 1 shards the optimizer states
zero2.py             stage 2 shards the gradients, too
zero3.py             stage 3 shards the parameters, too (FSDP)
sharding.py          sharding layouts: flat parameter, or per parameter
buckets.py           parameters that are communicated together: sharded, gathering, unsharded
memory.py            a bucket's buffers, registered with the memory ledger
forward_gather.py    the all-gather of stages 1 and 2, overlapped with the next forward
reduction.py         gradient reduction overlapped with backward
sharded_step.py      the optimizer step on this rank's shards
units.py             FSDP units, and their execution order for prefetching
initialization.py    all ranks start from the same weights; materialize from the meta device
offload.py           ZeRO-Offload and ZeRO-Infinity: stages 2 and 3 that offload to
cpu_offload.py           host memory,
nvme_offload.py          or files
estimators.py        memory estimates of model states
"""

from . import estimators
from .cpu_offload import CPUOffload, OffloadError
from .nvme_offload import NVMeOffload
from .offload import ZeROInfinity, ZeROOffload
from .sharding import FlatSharding, PerParameterSharding
from .zero1 import ZeRO1
from .zero2 import ZeRO2
from .zero3 import ZeRO3

__all__ = [
    "CPUOffload",
    "FlatSharding",
    "NVMeOffload",
    "OffloadError",
    "PerParameterSharding",
    "ZeRO1",
    "ZeRO2",
    "ZeRO3",
    "ZeROInfinity",
    "ZeROOffload",
    "estimators",
]
