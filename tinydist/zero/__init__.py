"""ZeRO: stages 1, 2 and 3 shard the optimizer states, then also the gradients, then also the parameters (FSDP).

Each idea, and where it is:

zero1.py             stage 1 shards the optimizer states: reduce-scatter, step on the shard, all-gather;
                     gradients are clipped by the norm of all shards
zero2.py             stage 2 shards the gradients, too: others' are freed once they are reduced
zero3.py             stage 3 shards the parameters, too (FSDP): gathered unit by unit, prefetched, freed
sharding.py          who owns what: a flat parameter, or each parameter cut into rows
buckets.py           parameters that are communicated together: sharded, gathering, unsharded;
                     with replicas (HSDP), gradient shards are all-reduced between the nodes
overlap.py           reduction behind backward, or not before the last microbatch (no_sync); the gather of stages
                     1 and 2 behind the next forward
sharded_step.py      the optimizer step on this rank's shards
initialization.py    all ranks start from the same weights; materialize from the meta device
offload/             stages 2 and 3 with model states in host memory or in files
memory.py            a bucket's buffers, registered with the memory ledger
estimators.py        memory estimates of model states
"""

from . import estimators
from .offload import CPUOffload, NVMeOffload, OffloadError, ZeROInfinity, ZeROOffload
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
