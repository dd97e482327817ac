"""ZeRO: one ladder from DDP to fully sharded. Each stage keeps one thing more of its own shard alone.

shards.py              whose is what: two layouts
buckets.py             what travels together; sharded, gathering, whole
reduction.py           gradients are reduced while backward goes on
stepper.py             the step, on the own shards
optimizer_states.py    stage 1: the optimizer's states
gradients.py           stage 2: the gradients
parameters.py          stage 3: the parameters (FSDP)
units.py               what is gathered at once, and in which order
start.py               all ranks begin alike; from the meta device, no rank has the whole model
memory.py              what the meter is told
homes.py               the host's memory: where what is offloaded is kept
disk.py                files, the same
offload.py             stages 2 and 3 with another home (ZeRO-Offload, ZeRO-Infinity), and the step there
estimators.py          what model states need, before anything is run
"""

from . import estimators
from .disk import Disk
from .gradients import Gradients
from .homes import Host, OffloadError
from .offload import Infinity, Offload
from .optimizer_states import OptimizerStates
from .parameters import Parameters
from .shards import ByParameter, InARow

__all__ = [
    "ByParameter",
    "Disk",
    "Gradients",
    "Host",
    "InARow",
    "Infinity",
    "Offload",
    "OffloadError",
    "OptimizerStates",
    "Parameters",
    "estimators",
]
