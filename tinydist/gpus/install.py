"""``installed``: while this lasts, torch.cuda and torch.accelerator answer for pretended GPUs, and refuse the rest."""

from contextlib import ExitStack, contextmanager
from datetime import timedelta
from types import FunctionType

import torch
import torch.cuda.profiler
import torch.distributed as dist
import torch.nn.parallel.comm

from ..torch_internals import accelerator
from ..tracing import streams
from ..tracing.live_clock import LiveClock
from . import checkpoints, cuda_devices, cuda_memory, cuda_streams, memory_snapshot, sharded_attention, threads
from .batch_norm_kernels import KERNELS
from .device_mode import CallsNoted
from .nccl import NCCL, devices_of
from .observer import GPUObserver
from .placement import HOST
from .rank_gpus import RankGPUs, mine, of_thread
from .storages import OF_STORAGES
from .tensors import ATTRIBUTES, MAKERS, parsed
from .torch_classes import REPLACED

cuda = torch.cuda
FUNCTIONS = {  # name -> what answers
    name: function
    for module in (cuda_devices, cuda_memory, cuda_streams, memory_snapshot)
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
OF_GPUS = "torch.cuda", "torch.accelerator", "torch.nn.parallel.comm"
KEPT = {"check_error"}  # it does not ask a GPU
REFUSED = [
    "CUDAGraph",
    "graph",
    "Graph",
    "MemPool",
    "ExternalStream",
    "GreenContext",
    "CUDAPluggableAllocator",
    "profile",
]


def refused(where, name, real):
    def refuse(*args, **kwargs):
        raise NotImplementedError(
            f"{where}.{name} on rank {mine().rank}: pretended GPUs cannot answer this call. What they can: "
            "devices, memory, streams and events, random numbers, nvtx"
        )

    return type("refuse", (), {"__new__": refuse}) if isinstance(real, type) else refuse  # annotations name classes


def names_in(module, answers):
    """Each public function of a module: what answers it, or a refusal by its name."""
    functions = [name for name, value in vars(module).items() if isinstance(value, FunctionType)]
    asked = [name for name in functions if vars(module)[name].__module__.startswith(OF_GPUS) and name[0] != "_"]
    asked += [name for name in REFUSED if name in vars(module)]
    answered = {name: function for name, function in answers.items() if name in vars(module)}
    return {name: refused(module.__name__, name, vars(module)[name]) for name in asked if name not in KEPT} | answered


def names_of_accelerator():
    ours = FUNCTIONS | {name: FUNCTIONS[theirs] for name, theirs in UNDER_ACCELERATOR.items()}
    return ours | {"current_accelerator": current_accelerator}


def current_accelerator(check_available=False):
    return torch.device("cuda") if not check_available or FUNCTIONS["is_available"]() else None


def public(of):
    return {name: getattr(of, name) for name in vars(of) if not name.startswith("_")}


ANSWERS = [  # (module of torch, what answers its functions)
    (cuda, FUNCTIONS | {"_initialized": True}),
    (torch.accelerator, names_of_accelerator()),
    (cuda.memory, FUNCTIONS),
    (cuda.random, FUNCTIONS),
    (cuda.streams, FUNCTIONS),
    (cuda.graphs, FUNCTIONS),
    (cuda.nccl, public(cuda_devices.NCCLModule)),
    (cuda.nvtx, public(cuda_streams.NVTX)),
    (cuda.profiler, {}),
    (torch.nn.parallel.comm, {}),  # nn.DataParallel's
]


@contextmanager
def replaced(where, names):
    before = {name: vars(where)[name] for name in names if name in vars(where)}
    for name, value in names.items():
        setattr(where, name, value)
    try:
        yield
    finally:
        for name in names:
            if name in before:
                setattr(where, name, before[name])
            else:
                delattr(where, name)


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
            for module, answers in ANSWERS:
                stack.enter_context(replaced(module, names_in(module, answers)))
            stack.enter_context(replaced(torch.Tensor, ATTRIBUTES))
            stack.enter_context(replaced(torch.UntypedStorage, OF_STORAGES))
            stack.enter_context(replaced(torch, MAKERS | KERNELS))
            for where, name, value in REPLACED:
                stack.enter_context(replaced(where, {name: value}))
            stack.enter_context(accelerator(torch.device("cuda"), parsed))
            stack.enter_context(replaced(streams.Stream, {"device": property(cuda_streams.device_of_stream)}))
            stack.enter_context(replaced(torch.version, {"cuda": cuda_devices.CUDA_VERSION}))
            stack.enter_context(replaced(dist, {"is_nccl_available": lambda: True}))
            stack.enter_context(replaced(dist.distributed_c10d, {"default_pg_nccl_timeout": NCCL_TIMEOUT}))
            if self.fake:
                from .fake import forecasting  # which loads much of torch

                stack.enter_context(forecasting(replaced))
            stack.enter_context(replaced(threads.Thread, threads.METHODS))
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
            with GPUObserver(self.record, rank, gpus) as gpus.observer, CallsNoted():
                try:
                    yield
                finally:
                    torch.set_default_device(None)  # its mode, if there is one, is above
        finally:
            of_thread.gpus = None
