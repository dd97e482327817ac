"""Homes for what a device has no room for: the memory of the host, behind PCIe; files on a disk, behind the host.

    device  <-- link -->  host  <-- disk link -->  files

On processors "device" and "host" are the same memory. Here they differ in what is observed: work on tensors of the
host is none of the device's, so ledger and clock do not see it. What crosses a link is counted (``home.moved``), and
charged to the virtual time of the rank, as operators that compute waits for: bytes / bandwidth + latency. So is the
optimizer's step, by the bytes that it reads and writes in the host's memory. Nothing of it overlaps with compute.
"""

import ctypes
import os
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
import torch.distributed as dist
from torch._subclasses import FakeTensor

from ..hardware import Link
from ..hardware.costs import message_seconds
from ..hardware.links import PCIE_4
from ..simulator.memory import of_thread
from ..simulator.record import Operator
from ..simulator.torch_internals import unobserved

DDR4 = Link("8 channels of DDR4-3200, shared by 8 devices", 0.0, 8 * 3200e6 * 8 / 8)
NVME = Link("NVMe", 100e-6, 3.2e9)  # assumed: a drive on 4 lanes of PCIe 3 (3.9 GB/s at most)


class OffloadError(OSError):
    """What is kept on a disk cannot be read or written. Nothing has been changed by the step that failed."""


class Host:
    """The memory of the machine. ``link``: to the device; ``memory``: what one rank has of the host's own."""

    def __init__(self, link=PCIE_4, memory=DDR4):
        self.link, self.memory = link, memory
        self.moved = Counter()  # "to host", "to device", "from disk", "to disk" -> bytes

    def _charge(self, name, nbytes, link):
        self.moved[name] += nbytes
        ledger = getattr(of_thread, "ledger", None)
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


class Disk(Host):
    """Files in ``folder``, one for each tensor. A step writes new files, and forgets the old ones when all are there.

    So it must have room for twice what is kept. Files are written and read in whole, and not while compute goes on.
    """

    def __init__(self, folder, link=PCIE_4, memory=DDR4, disk=NVME):
        super().__init__(link, memory)
        self.folder, self.disk = Path(folder), disk
        self.folder.mkdir(parents=True, exist_ok=True)
        self.files, self.new, self.number = {}, {}, 0  # tensor -> path

    def put_away(self, tensor):
        with unobserved():
            self.files[tensor] = self._write(tensor)

    def drop(self, tensor, only_new=False):
        for files in (self.new,) if only_new else (self.new, self.files):
            if tensor in files:
                files.pop(tensor).unlink(missing_ok=True)

    @contextmanager
    def at_work(self, tensors, changed=True):
        with super().at_work(tensors, changed):
            try:
                for tensor in tensors():
                    self._read(tensor)
                yield
                for tensor in tensors() if changed else ():
                    self.drop(tensor, only_new=True)
                    self.new[tensor] = self._write(tensor)
            finally:
                for tensor in tensors():
                    _empty(tensor)

    @contextmanager
    def all_or_nothing(self, group):
        error = None
        try:
            yield
        except OffloadError as raised:
            error = raised
        except BaseException:
            self._forget_new()
            raise
        errors = [None] * dist.get_world_size(group)
        dist.all_gather_object(errors, error and str(error), group)
        if any(errors):
            self._forget_new()
            rank = next(rank for rank, each in enumerate(errors) if each)
            raise error or OffloadError(f"rank {rank} of the group has failed, so no rank has stepped: {errors[rank]}")
        for tensor, path in self.new.items():
            if tensor in self.files:
                self.files[tensor].unlink(missing_ok=True)
            self.files[tensor] = path
        self.new.clear()

    def _forget_new(self):
        for path in self.new.values():
            path.unlink(missing_ok=True)
        self.new.clear()

    def _write(self, tensor):
        """To a new file; the memory is free then."""
        self.number += 1
        path = self.folder / f"rank {dist.get_rank()} tensor {self.number}"
        try:
            with open(path, "wb") as file:
                file.write(_bytes_of(tensor))
        except OSError as error:
            with suppress(OSError):
                path.unlink()
            raise OffloadError(
                error.errno, f"{tensor.nbytes} bytes cannot be written: {error.strerror}", str(path)
            ) from error
        self._charge("to disk", tensor.nbytes, self.disk)
        _empty(tensor)
        return path

    def _read(self, tensor):
        nbytes = tensor.numel() * tensor.element_size()
        path = self.new.get(tensor) or self.files[tensor]
        tensor.untyped_storage().resize_(nbytes)
        try:
            with open(path, "rb") as file:
                found = file.readinto(_bytes_of(tensor))
                rest = len(file.read(1))
        except OSError as error:
            raise OffloadError(
                error.errno, f"a shard of {nbytes} bytes is gone: {error.strerror}", str(path)
            ) from error
        if found != nbytes or rest:
            raise OffloadError(None, f"a shard has {os.path.getsize(path)} bytes, but {nbytes} were written", str(path))
        self._charge("from disk", nbytes, self.disk)


def _bytes_of(tensor):
    """Its memory, to read into and write from. (A storage that NumPy has seen can no longer be freed.)"""
    return memoryview((ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr()))


def _empty(tensor):
    tensor.untyped_storage().resize_(0)
