"""Classes and functions of torch that name a device to C++, or need a real GPU: what they are while ranks run."""

from contextlib import contextmanager
from functools import wraps

import torch
from torch.amp.autocast_mode import autocast
from torch.utils.data import DataLoader

from ..annotate import purpose
from ..precision.autocast import autocast as by_cuda_lists
from ..precision.autocast import entered
from ..torch_internals import reducer_allocating
from .placement import new_tensors_on
from .rank_gpus import of_thread

WORKERS = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False, "timeout": 0}


def mine():
    return of_thread.gpus


def note(asked, got):
    if mine():
        mine().note(asked, got)


# Autocast: precision/autocast.py has CUDA's lists; C++ knows CPU tensors, and has others for them.

make, begin, end = autocast.__init__, autocast.__enter__, autocast.__exit__


@wraps(autocast.__init__)
def autocast_init(self, device_type, dtype=None, enabled=True, cache_enabled=None):
    make(self, device_type, dtype, enabled, cache_enabled)
    self.inner = None


def autocast_enter(self):
    if self.device != "cuda" or mine() is None:
        return begin(self)
    enabled = self._enabled and self.fast_dtype in (torch.float16, torch.bfloat16)  # to float32 nothing is lowered
    self.inner = [*(getattr(self, "inner", None) or ()), made(self, enabled)]
    self.inner[-1].__enter__()
    return self


def made(context, enabled):
    return by_cuda_lists("cuda", context.fast_dtype if enabled else None, enabled, context._cache_enabled)


def autocast_exit(self, *error):
    if not getattr(self, "inner", None):
        return end(self, *error)
    return self.inner.pop().__exit__(*error)


def is_autocast_enabled(device_type=None):
    if device_type in (None, "cuda") and mine():
        innermost = entered.get()[0]
        return innermost is not None and bool(innermost.rules)
    return real["is_autocast_enabled"](*([] if device_type is None else [device_type]))


def get_autocast_dtype(device_type):
    if device_type == "cuda" and mine():
        innermost = entered.get()[0]
        return innermost.dtype if innermost else torch.float16
    return real["get_autocast_dtype"](device_type)


def get_autocast_gpu_dtype():
    return get_autocast_dtype("cuda")


# Others.


@wraps(DataLoader.__init__)  # libraries look at its parameters
def dataloader_init(self, dataset, *args, num_workers=0, **kwargs):
    """A worker would be a process; here the rank loads its data itself."""
    if len(args) > 4:  # (batch_size, shuffle, sampler, batch_sampler, num_workers, ...)
        args, num_workers = (*args[:4], 0, *args[5:]), args[4]
    else:
        kwargs["num_workers"] = 0
    if num_workers:
        note(f"DataLoader(num_workers={num_workers})", "the rank loads its data itself")
        kwargs |= {name: value for name, value in WORKERS.items() if name in kwargs}
        kwargs.pop("multiprocessing_context", None)
    make_loader(self, dataset, *args, **kwargs)


make_loader = DataLoader.__init__


@contextmanager
def beside(parameter):
    with new_tensors_on(parameter.device), purpose("communication"):
        yield


class EveryGenerator(type(torch.Generator)):
    """Those of torch are instances too: of the host, or made before the launch."""

    def __instancecheck__(cls, generator):
        return isinstance(generator, OfHost)


OfHost = torch.Generator


class Generator(OfHost, metaclass=EveryGenerator):
    """``torch.Generator("cuda")``: C++ has one for the host, which draws other numbers than a GPU's would."""

    def __new__(cls, device="cpu"):
        generator = super().__new__(cls, device="cpu")
        generator.where = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        return generator

    @property
    def device(self):
        return mine().device(self.where) if mine() else self.where


def compile(model=None, **options):
    note("torch.compile", "runs eagerly")
    return model if model is not None else lambda function: function


def module_compile(self, *args, **kwargs):
    note("Module.compile", "runs eagerly")


@wraps(torch.jit.script)
def script(obj, optimize=None, _frames_up=0, *args, **kwargs):
    """As with ``PYTORCH_JIT=0``: compiled code would ask C++ for devices, and there all tensors are on the host. torch
    compiles some of its own functions when a module of it is imported: they are compiled."""
    if mine() is None or (getattr(obj, "__module__", None) or "").startswith("torch."):
        return compile_script(obj, optimize, _frames_up + 1, *args, **kwargs)  # names are looked up in the caller
    note("torch.jit.script", "runs eagerly")
    return obj


compile_script = torch.jit.script


class sdpa_kernel:
    """Which kernel computes attention is the processor's."""

    def __init__(self, backends=None, set_priority=False):
        note("sdpa_kernel", "attention is computed by the processor's kernel")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


real = {name: getattr(torch, name) for name in ("is_autocast_enabled", "get_autocast_dtype", "get_autocast_gpu_dtype")}

REPLACED = [  # (where, name, what)
    (autocast, "__init__", autocast_init),
    (autocast, "__enter__", autocast_enter),
    (autocast, "__exit__", autocast_exit),
    (torch, "is_autocast_enabled", is_autocast_enabled),
    (torch, "get_autocast_dtype", get_autocast_dtype),
    (torch, "get_autocast_gpu_dtype", get_autocast_gpu_dtype),
    (torch, "Generator", Generator),
    (torch, "compile", compile),
    (torch.nn.Module, "compile", module_compile),
    (torch.jit, "script", script),
    (torch.nn.attention, "sdpa_kernel", sdpa_kernel),
    (DataLoader, "__init__", dataloader_init),
    (torch.distributed, "Reducer", reducer_allocating(beside)),
]
