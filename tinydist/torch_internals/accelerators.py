"""What torch's Python asks C++ about the accelerator."""

from contextlib import contextmanager

import torch
from torch._prims import rng_prims
from torch.utils import _device as default_devices
from torch.utils._python_dispatch import TorchDispatchMode

parse_to_arguments = torch._C._nn._parse_to  # (device, dtype, non_blocking, memory_format) of the arguments of ``to``


def default_device():
    """That of ``with torch.device(...)`` or ``torch.set_default_device``; None is the host. (Torch's own function makes a
    tensor to find out.)"""
    return default_devices.CURRENT_DEVICE


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


@contextmanager
def accelerator(device, parse):
    """While this lasts, torch's Python takes ``device`` for the accelerator, whatever C++ was built for;
    ``module.to(...)`` reads its arguments with ``parse``; and C++ is told "cpu" for the device of wrapped tensors."""
    asks, wraps = torch._C._get_accelerator, torch.Tensor._make_wrapper_subclass

    def wrap(*args, device=None, **how):
        return wraps(*args, device=device and (device if device.type == "meta" else torch.device("cpu")), **how)

    torch._C._get_accelerator, torch._C._nn._parse_to = lambda check=False: device, parse
    torch.Tensor._make_wrapper_subclass = staticmethod(wrap)
    try:
        yield
    finally:
        torch._C._get_accelerator, torch._C._nn._parse_to = asks, parse_to_arguments
        torch.Tensor._make_wrapper_subclass = wraps
