"""``installed``: while this lasts, torch.cuda and torch.accelerator answer for pretended GPUs, and refuse the rest."""

from contextlib import ExitStack, contextmanager
from datetime import timedelta
from types import FunctionType

import torch
import torch.distributed as dist

from ..torch_internals import accelerator
from ..tracing.live_clock import LiveClock
from . import checkpoints, cuda_devices, cuda_memory, cuda_streams, sharded_attention
from .device_mode import CallsNoted
from .nccl import NCCL, devices_of
from .placement import HOST
from .observer import GPUObserver
from .rank_gpus import RankGPUs, mine, of_thread
from .tensors import ATTRIBUTES, MAKERS, parsed
from .torch_classes import REPLACED

cuda = torch.cuda
FUNCTIONS = {  # name -> what answers
    name: function
    for module in (cuda_devices, cuda_memory, cuda_streams)
    for name, function in vars(module).items()
    if getattr(function, "__module__", None) == module.__name__
}
UNDER_ACCELERATOR = {  # torch.accelerator's name -> torch.cuda's
    "current_device_index": "current_device",
    "current_device_idx": "current_device",
    "set_device_index": "set_device",
    "set_device_idx": "set_device",
    "device_index": "device",
}
NCCL_TIMEOUT = timedelta(minutes=10)  # torch's default
KEPT = {"Any", "amp", "check_error", "DeferredCudaCallError", "OutOfMemoryError", "AcceleratorError"}


def refused(where, name):
    def refuse(*args, **kwargs):
        raise NotImplementedError(
            f"{where}.{name} on rank {mine().rank}: pretended GPUs cannot answer this call. What they can: "
            "devices, memory, streams and events, random numbers, nvtx"
        )

    return refuse


def names_of_cuda():
    """What each public function of torch.cuda is, and the classes that are asked for."""
    functions = [name for name, value in vars(cuda).items() if isinstance(value, FunctionType) and name not in KEPT]
    public = [name for name in functions if not name.startswith("_")]
    return {name: refused("torch.cuda", name) for name in public} | {
        name: function for name, function in FUNCTIONS.items() if hasattr(cuda, name)
    }


def names_of_accelerator():
    ours = {name: FUNCTIONS[name] for name in torch.accelerator.__all__ if name in FUNCTIONS}
    ours |= {name: FUNCTIONS[theirs] for name, theirs in UNDER_ACCELERATOR.items()}
    ours["current_accelerator"] = lambda check_available=False: torch.device("cuda")
    return ours


def names_of_submodules():
    """torch.cuda.memory.max_memory_allocated is torch.cuda.max_memory_allocated."""
    for name in ("memory", "random", "streams"):
        module = getattr(cuda, name)
        yield module, {each: FUNCTIONS[each] for each in vars(module) if each in FUNCTIONS}


@contextmanager
def replaced(where, names):
    before = {name: vars(where).get(name) for name in names}
    for name, value in names.items():
        setattr(where, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                delattr(where, name)
            else:
                setattr(where, name, value)


REGISTERED = checkpoints, sharded_attention  # with torch, when they are imported


class PretendedGPUs:
    """Of a launch."""

    def __init__(self, cluster, record, fake=False, values=None):
        self.cluster, self.record, self.nccl = cluster, record, NCCL()
        self.fake, self.values = fake, values
        self.clock = LiveClock(record.programs, cluster)

    @contextmanager
    def installed(self):
        with ExitStack() as stack:
            stack.enter_context(replaced(cuda, names_of_cuda()))
            stack.enter_context(replaced(torch.accelerator, names_of_accelerator()))
            for where, names in names_of_submodules():
                stack.enter_context(replaced(where, names))
            stack.enter_context(replaced(torch.Tensor, ATTRIBUTES))
            stack.enter_context(replaced(torch, MAKERS))
            for where, name, value in REPLACED:
                stack.enter_context(replaced(where, {name: value}))
            stack.enter_context(accelerator(torch.device("cuda"), parsed))
            stack.enter_context(replaced(torch.version, {"cuda": cuda_devices.NEWEST}))
            stack.enter_context(replaced(dist, {"is_nccl_available": lambda: True}))
            stack.enter_context(replaced(dist.distributed_c10d, {"default_pg_nccl_timeout": NCCL_TIMEOUT}))
            if self.fake:
                from .fake import forecasting  # which loads much of torch

                stack.enter_context(forecasting(replaced))
            yield

    def devices_of(self, backend):
        """Whose tensors a group takes. Objects travel by way of the host, where they keep their data."""
        return [HOST] if self.fake else devices_of(backend)

    def check_call(self, backend, name, tensors, reduction):
        self.nccl.check(mine(), backend, name, tensors, reduction)

    @contextmanager
    def of_rank(self, rank, fake):
        gpus = of_thread.gpus = RankGPUs(self.cluster, rank, self.record, self.clock, fake, self.values)
        try:
            with GPUObserver(self.record, rank, gpus), CallsNoted():
                yield
        finally:
            of_thread.gpus = None


