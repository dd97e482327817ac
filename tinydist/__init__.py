"""tinydist: learn how large models are trained on many accelerators.

    simulator/        a cluster inside one process: a backend of torch.distributed
    processes.py      real ranks from a notebook: gloo or nccl workers
    launch.py         the front door: run one function on N ranks of any world
    model/            one plain GPT that knows nothing of parallelism, and text for it
"""

from .launch import Run, launch
from .simulator.deadlock import DeadlockError
from .simulator.matching import MismatchError

__all__ = ["DeadlockError", "MismatchError", "Run", "launch"]
