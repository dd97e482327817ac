"""Offload device ``nvme``: temporary files, private to a rank, with a checksum that is verified at each read."""

import ctypes
import os
import shutil
import tempfile
import weakref
import zlib
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import torch.distributed as dist

from ...checkpoint.consensus import consensus, place_in
from ...hardware import Link
from ...hardware.links import PCIE_4
from ...torch_internals import unobserved
from .cpu import DDR4, CPUOffload, OffloadError

NVME = Link("NVMe", 100e-6, 3.2e9)  # assumed: a drive on 4 lanes of PCIe 3 (3.9 GB/s at most)


class File(NamedTuple):
    path: Path
    checksum: int  # of what was written


class NVMeOffload(CPUOffload):
    """Offload to files in a new subfolder of ``folder``, one per tensor. ``disk``: the link to the drive.

    They are removed when it is closed or garbage-collected, when the process group that it was made in is destroyed (at
    the end of a run), and when the process exits; a killed process leaves them. A step writes new files and removes the
    old ones once all are complete: so the drive needs room for twice the bytes. Files are read and written in whole,
    do not overlap with compute, and symbolic links are not followed.

    Each has a checksum (CRC-32: it detects any error within 32 bits, and of others all but one in 2^32), verified
    before the data is used: a second pass over the bytes, at about 1 GB/s. Raises ``OffloadError``.
    """

    def __init__(self, folder, link=PCIE_4, memory=DDR4, disk=NVME):
        super().__init__(link, memory)
        self.disk = disk
        Path(folder).mkdir(parents=True, exist_ok=True)
        rank, _ = place_in()
        self.folder = Path(tempfile.mkdtemp(prefix=f"rank-{rank}-", dir=folder))
        self.close = weakref.finalize(self, _remove, self.folder, os.getpid())
        if dist.is_initialized():
            weakref.finalize(dist.group.WORLD, self.close)
        self.files, self.new, self.dropped = {}, {}, set()  # tensor -> File
        self.changing, self.number = False, 0

    def __reduce__(self):
        """Another process gets its own folder beside this one."""
        if self.files:
            raise TypeError("an NVMeOffload with offloaded tensors cannot be copied to another process")
        return NVMeOffload, (self.folder.parent, self.link, self.memory, self.disk)

    def evict(self, tensor):
        with unobserved():
            self._keep(tensor)

    def discard(self, tensor):
        self.dropped.add(tensor)
        if not self.changing:
            self._commit()

    @contextmanager
    def in_memory(self, tensors, changed=True):
        with super().in_memory(tensors, changed):
            try:
                for tensor in tensors():
                    self._read(tensor)
                yield
                for tensor in tensors() if changed else ():
                    self._keep(tensor)
            finally:
                self.synchronize()  # copies from there
                for tensor in tensors():
                    _empty(tensor)

    @contextmanager
    def transaction(self, group):
        self.changing = True
        try:
            with consensus("offload failed; no rank was modified", group, OffloadError):
                yield
            self._commit()
        finally:
            _unlink(self.new.values())
            self.new, self.dropped, self.changing = {}, set(), False

    def _commit(self):
        _unlink(self.files.pop(tensor) for tensor in {*self.new, *self.dropped} & self.files.keys())
        self.files |= self.new
        self.new, self.dropped = {}, set()

    def _keep(self, tensor):
        _unlink([self.new.pop(tensor)] if tensor in self.new else [])
        self.new[tensor] = self._write(tensor)
        if not self.changing:
            self._commit()

    def _write(self, tensor):
        """To a new file; then the memory is freed."""
        self.number += 1
        path, data = self.folder / f"tensor {self.number}", _bytes_of(tensor)
        file = File(path, zlib.crc32(data))
        try:
            with _create(path) as opened:
                opened.write(data)
        except OSError as error:
            _unlink([file])
            raise OffloadError(
                error.errno, f"cannot write {tensor.nbytes} bytes: {error.strerror}", str(path)
            ) from error
        self._charge("to disk", tensor.nbytes, self.disk)
        _empty(tensor)
        return file

    def _read(self, tensor):
        nbytes = tensor.numel() * tensor.element_size()
        path, checksum = self.new.get(tensor) or self.files[tensor]
        tensor.untyped_storage().resize_(nbytes)
        data = _bytes_of(tensor)
        try:
            with open(path, "rb", opener=_not_a_link) as file:
                found = file.readinto(data)
                rest = len(file.read(1))
        except OSError as error:
            raise OffloadError(
                error.errno, f"cannot read a shard of {nbytes} bytes: {error.strerror}", str(path)
            ) from error
        if found != nbytes or rest:
            raise OffloadError(None, f"a shard has {os.path.getsize(path)} bytes, but {nbytes} were written", str(path))
        if zlib.crc32(data) != checksum:
            raise OffloadError(None, f"a shard of {nbytes} bytes is corrupt: checksum mismatch", str(path))
        self._charge("from disk", nbytes, self.disk)


def _create(path):
    """A new file; fails if there is one, or a symbolic link."""
    return open(path, "xb")


def _not_a_link(path, flags):
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _unlink(files):
    for file in files:
        with suppress(OSError):
            file.path.unlink()


def _remove(folder, owner):
    if os.getpid() == owner:  # a child that was forked ends, too
        shutil.rmtree(folder, ignore_errors=True)


def _bytes_of(tensor):
    """Its memory as a buffer. (A storage that NumPy has seen can no longer be freed.)"""
    return memoryview((ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr()))


def _empty(tensor):
    tensor.untyped_storage().resize_(0)
