"""Offload device ``cpu``: host memory, over PCIe. (Files on a drive behind it: nvme.py.)

    device  <-- link -->  host  <-- NVMe -->  files

    backward    layer 3 | layer 2 | layer 1 |           step on the host
    to host               gradient 3 | 2 | 1 |                           | weights 1, 2, 3 to the device

Copies overlap with compute: on GPUs on a separate stream, with pinned memory; in virtual time on one stream for each
direction. The device waits for a copy when it needs the data.

On CPUs "device" and "host" are the same memory. Here they differ in what is observed: ledger and clock do not see work
on offloaded tensors. Copies over a link are counted (``moved``), and take bytes / bandwidth + latency. The optimizer's
step takes time for the bytes that it reads and writes in host memory, and so does a drive: the device waits for both.
"""

from collections import Counter
from contextlib import contextmanager

import torch
from torch._subclasses import FakeTensor

from ...annotate import begin_copy, stall, under_way
from ...hardware import Link
from ...hardware.costs import p2p_time
from ...hardware.links import PCIE_4
from ...torch_internals import unobserved

DDR4 = Link("8 channels of DDR4-3200, shared by 8 devices", 0.0, 8 * 3200e6 * 8 / 8)


class OffloadError(OSError):
    """An offloaded tensor cannot be read or written. The step that failed has modified nothing."""


class CPUOffload:
    """Offload to host memory. ``link``: to the device; ``memory``: one rank's share of the host's bandwidth."""

    def __init__(self, link=PCIE_4, memory=DDR4):
        self.link, self.memory = link, memory
        self.moved = Counter()  # "to host", "to device", "from disk", "to disk" -> bytes
        self.stream = None  # of a GPU, for copies

    def _charge(self, name, nbytes, link):
        """The device waits for it."""
        self.moved[name] += nbytes
        stall(name, nbytes, p2p_time(nbytes, link))

    def _start_copy(self, name, tensor):
        self.moved[name] += tensor.nbytes
        return begin_copy(name, tensor, tensor.nbytes, p2p_time(tensor.nbytes, self.link))

    def empty_like(self, tensor):
        """In host memory; pinned, for a GPU. (For a fake tensor, without data.)"""
        if isinstance(tensor, FakeTensor):
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda)

    def store(self, tensor):
        """A copy in host memory, complete after ``synchronize``."""
        under_way().append(self._start_copy("to host", tensor))
        with unobserved():
            kept = self.empty_like(tensor)
            return kept if kept.is_meta else self._copy(kept, tensor.detach())

    def synchronize(self):
        """Wait for all pending copies to the host."""
        for end in under_way():
            end()
        under_way().clear()
        if self.stream:
            self.stream.synchronize()

    def load(self, tensor, kept):
        """Start a copy of ``kept`` to the device's ``tensor``, cast before it is sent; returns the wait for it."""
        end = self._start_copy("to device", tensor)
        if not isinstance(tensor, FakeTensor):
            with unobserved():
                self._copy(tensor, kept.to(tensor.dtype))

        def wait():
            end()
            if self.stream:
                torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)

        return wait

    def _copy(self, tensor, source):
        """Into ``tensor``, overlapping with compute."""
        on_device = [each for each in (tensor, source) if each.is_cuda]
        if not on_device:
            return tensor.copy_(source)
        device = on_device[0].device  # not always the current one
        self.stream = self.stream or torch.cuda.Stream(device)
        self.stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self.stream):
            tensor.copy_(source, non_blocking=True)
        on_device[0].record_stream(self.stream)  # so its memory is not reused before
        return tensor

    @contextmanager
    def in_memory(self, tensors, changed=True):
        """Context: the offloaded ``tensors()`` can be read, and written if they are ``changed``."""
        with unobserved():
            yield
            nbytes = sum(tensor.nbytes for tensor in tensors())
        if changed:
            self._charge("host step", 2 * nbytes, self.memory)

    def evict(self, tensor):
        """It is not accessed before it is ``in_memory`` again."""

    def discard(self, tensor):
        """Discard ``tensor``."""

    @contextmanager
    def transaction(self, group):
        """Changes made in here are kept if all ranks succeed, and else on none (nvme.py)."""
        yield
