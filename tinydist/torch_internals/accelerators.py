"""What torch's Python asks C++ about the accelerator."""

from contextlib import contextmanager

import torch
from torch.utils import _device as default_devices

parse_to_arguments = torch._C._nn._parse_to  # (device, dtype, non_blocking, memory_format) of the arguments of ``to``


def default_device():
    """That of ``with torch.device(...)`` or ``torch.set_default_device``; None is the host. (Torch's own function makes a
    tensor to find out.)"""
    return default_devices.CURRENT_DEVICE


@contextmanager
def accelerator(device, parse):
    """While this lasts, torch's Python takes ``device`` for the accelerator, whatever C++ was built for, and
    ``module.to(...)`` reads its arguments with ``parse``."""
    before = torch._C._get_accelerator
    torch._C._get_accelerator, torch._C._nn._parse_to = lambda check=False: device, parse
    try:
        yield
    finally:
        torch._C._get_accelerator, torch._C._nn._parse_to = before, parse_to_arguments
