"""What torch's Python asks C++ about the accelerator."""

from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
import torchgen
from torch._prims import rng_prims
from torch.jit import _builtins
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _device as default_devices
from torch.utils._python_dispatch import TorchDispatchMode

default_devices._device_constructors()  # which is kept: asked for the first time on a rank, it would keep our functions
modes_unseen = torch._C.DisableTorchFunction  # a context: torch function modes, and subclasses' functions, see no calls
inside_of = torch._C._functorch.get_unwrapped  # what a tensor of vmap, grad or jvp wraps
parse_to_arguments = torch._C._nn._parse_to  # (device, dtype, non_blocking, memory_format) of the arguments of ``to``


def default_device():
    """That of ``with torch.device(...)`` or ``torch.set_default_device``; None is the host. (Torch's own function makes
    a tensor to find out.)"""
    modes = reversed(_get_current_function_mode_stack())
    return next((mode.device for mode in modes if isinstance(mode, default_devices.DeviceContext)), None)


@cache
def declarations():
    path = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    return path.read_text() if path.exists() else ""


@cache
def declaration_of(operator):
    """What torch's list of operators says of it, "" if it is not listed. The list is a part of torch's code generator,
    which comes with torch."""
    schema = operator._schema
    overload = f".{schema.overload_name}" if schema.overload_name else ""
    _, _, text = declarations().partition(f"- func: {schema.name.removeprefix('aten::')}{overload}(")
    return text.partition("\n- func:")[0]


def compiled_as(function, real):
    """TorchScript compiles a call of ``function`` to the operator that it has for ``real``."""
    _builtins._register_builtin(function, _builtins._get_builtin_table()[id(real)])


def untyped(storage):
    """Bytes, of which a typed storage is a view."""
    return getattr(storage, "_untyped_storage", storage)


def on_host(value):
    """The host in place of a GPU."""
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value


def dtensors_draw_under(mode_class):
    """Random operators of DTensors on GPUs are run under that dispatch mode, as others are."""
    operator = getattr(rng_prims, "run_dtensor_rng_op", None)
    if operator is None:  # before torch 2.13
        return

    @operator.py_impl(mode_class)
    def on_gpu(mode, *args, **kwargs):
        TorchDispatchMode.__enter__(mode)
        try:
            return operator.py_kernels[torch._C.DispatchKey.CUDA](*args, **kwargs)
        finally:
            TorchDispatchMode.__exit__(mode, None, None, None)


def reducer_allocating(beside):
    """DDP's reducer, whose C++ allocates the buckets of gradients inside ``beside(parameter)``."""

    class Reducer(torch.distributed.Reducer):
        def __init__(self, parameters, *args, **kwargs):
            self.parameter = parameters[0]
            with beside(self.parameter):
                super().__init__(parameters, *args, **kwargs)

        def _rebuild_buckets(self):
            with beside(self.parameter):
                return super()._rebuild_buckets()

    return Reducer


@contextmanager
def accelerator(device, parse):
    """While this lasts, torch's Python takes ``device`` for the accelerator, whatever C++ was built for;
    ``module.to(...)`` reads its arguments with ``parse``; and C++ is told "cpu" for the device of wrapped tensors."""
    asks, wraps = torch._C._get_accelerator, torch.Tensor._make_wrapper_subclass

    def wrap(*args, **how):
        return wraps(*map(on_host, args), **{name: on_host(value) for name, value in how.items()})

    torch._C._get_accelerator, torch._C._nn._parse_to = lambda check=False: device, parse
    torch.Tensor._make_wrapper_subclass = staticmethod(wrap)
    try:
        yield
    finally:
        torch._C._get_accelerator, torch._C._nn._parse_to = asks, parse_to_arguments
        torch.Tensor._make_wrapper_subclass = wraps
