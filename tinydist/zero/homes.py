"""Homes for what a device has no room for: the memory of the host, behind PCIe; files on a disk, behind it (disk.py).

    device  <-- link -->  host  <-- disk link -->  files

    backward    layer 3 | layer 2 | layer 1 |           step on the host
    to host               gradient 3 | 2 | 1 |                           | weights 1, 2, 3 to the device

Copies go on while the device computes: on GPUs on a stream of their own, from and to pinned memory; in virtual time on
one for each direction. They are waited for when what they bring is needed.

On processors "device" and "host" are the same memory. Here they differ in what is observed: work on tensors of the
host is none of the device's, so ledger and clock do not see it. What crosses a link is counted (``home.moved``), and
takes bytes / bandwidth + latency. So does the optimizer's step, by the bytes that it reads and writes in the host's
memory, and whatever a disk does: for those the device waits.
"""

from collections import Counter
from contextlib import contextmanager

import torch
from torch._subclasses import FakeTensor

from ..annotate import begin_copy, stall, under_way
from ..hardware import Link
from ..hardware.costs import message_seconds
from ..hardware.links import PCIE_4
from ..torch_internals import unobserved

DDR4 = Link("8 channels of DDR4-3200, shared by 8 devices", 0.0, 8 * 3200e6 * 8 / 8)


class OffloadError(OSError):
    """What is kept on a disk cannot be read or written. Nothing has been changed by the step that failed."""


class Host:
    """The memory of the machine. ``link``: to the device; ``memory``: what one rank has of the host's own."""

    def __init__(self, link=PCIE_4, memory=DDR4):
        self.link, self.memory = link, memory
        self.moved = Counter()  # "to host", "to device", "from disk", "to disk" -> bytes
        self.stream = None  # of a GPU, for copies

    def _charge(self, name, nbytes, link):
        """The device waits for it."""
        self.moved[name] += nbytes
        stall(name, nbytes, message_seconds(nbytes, link))

    def _begin(self, name, tensor):
        self.moved[name] += tensor.nbytes
        return begin_copy(name, tensor, tensor.nbytes, message_seconds(tensor.nbytes, self.link))

    def room_like(self, tensor):
        """In the host's memory; pinned, for a GPU. (A fake tensor has no data: its room has none either.)"""
        if isinstance(tensor, FakeTensor):
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda)

    def keep(self, tensor):
        """A copy in the host's memory: once it has ``arrived``."""
        under_way().append(self._begin("to host", tensor))
        with unobserved():
            kept = self.room_like(tensor)
            return kept if kept.is_meta else self._beside(kept, tensor.detach())

    def arrived(self):
        """Whatever was on its way to the host."""
        for end in under_way():
            end()
        under_way().clear()
        if self.stream:
            self.stream.synchronize()

    def bring(self, tensor, kept):
        """Copy what is kept to the device's ``tensor``; 16-bit ones are rounded before they travel. Starts it, and
        returns what waits for its end.
        """
        end = self._begin("to device", tensor)
        if not isinstance(tensor, FakeTensor):
            with unobserved():
                self._beside(tensor, kept.to(tensor.dtype))

        def wait():
            end()
            if self.stream:
                torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)

        return wait

    def _beside(self, tensor, source):
        """``tensor`` from ``source``, while compute goes on."""
        on_device = [each for each in (tensor, source) if each.is_cuda]
        if not on_device:
            return tensor.copy_(source)
        device = on_device[0].device  # not always the current one
        self.stream = self.stream or torch.cuda.Stream(device)
        self.stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self.stream):
            tensor.copy_(source, non_blocking=True)
        on_device[0].record_stream(self.stream)  # its memory is not given to others before
        return tensor

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
