"""Homes for what a device has no room for: the memory of the host, behind PCIe; files on a disk, behind it (disk.py).

    device  <-- link -->  host  <-- disk link -->  files

On processors "device" and "host" are the same memory. Here they differ in what is observed: work on tensors of the
host is none of the device's, so ledger and clock do not see it. What crosses a link is counted (``home.moved``), and
charged to the virtual time of the rank, as operators that compute waits for: bytes / bandwidth + latency. So is the
optimizer's step, by the bytes that it reads and writes in the host's memory. Nothing of it overlaps with compute.
"""

from collections import Counter
from contextlib import contextmanager

import torch
from torch._subclasses import FakeTensor

from ..hardware import Link
from ..hardware.costs import message_seconds
from ..hardware.links import PCIE_4
from ..simulator.names import of_thread
from ..simulator.record import Operator
from ..simulator.torch_internals import unobserved

DDR4 = Link("8 channels of DDR4-3200, shared by 8 devices", 0.0, 8 * 3200e6 * 8 / 8)


class OffloadError(OSError):
    """What is kept on a disk cannot be read or written. Nothing has been changed by the step that failed."""


class Host:
    """The memory of the machine. ``link``: to the device; ``memory``: what one rank has of the host's own."""

    def __init__(self, link=PCIE_4, memory=DDR4):
        self.link, self.memory = link, memory
        self.moved = Counter()  # "to host", "to device", "from disk", "to disk" -> bytes

    def _charge(self, name, nbytes, link):
        self.moved[name] += nbytes
        ledger = of_thread.ledger
        if ledger:
            ledger.program.append(Operator(name, 0, nbytes, torch.uint8, message_seconds(nbytes, link)))

    def keep(self, tensor):
        """A copy in the host's memory. (A fake tensor has no data: one of the same shape.)"""
        self._charge("to host", tensor.nbytes, self.link)
        with unobserved():
            if isinstance(tensor, FakeTensor):
                return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
            return tensor.detach().to("cpu", copy=True)

    def bring(self, tensor, kept):
        """Copy what is kept to the device's ``tensor``; 16-bit ones are rounded before they travel."""
        self._charge("to device", tensor.nbytes, self.link)
        if not isinstance(tensor, FakeTensor):
            with unobserved():
                tensor.copy_(kept.to(tensor.dtype))

    @contextmanager
    def at_work(self, tensors, changed=True):
        """What is kept in ``tensors()`` can be read in here, and written if it is ``changed``."""
        with unobserved():
            yield
            nbytes = sum(tensor.nbytes for tensor in tensors())
        if changed:
            self._charge("host step", 2 * nbytes, self.memory)

    def put_away(self, tensor):
        """It is not needed before it is ``at_work`` again."""

    def drop(self, tensor):
        """It is not needed any more."""

    @contextmanager
    def all_or_nothing(self, group):
        """Of a disk: what is changed in here is kept if it ends well on all ranks, and else on none."""
        yield
