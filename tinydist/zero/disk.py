"""A disk as a home: files that nobody else writes, that are gone in the end, and are checked whenever they are read."""

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

from ..checkpoint.unanimous import place_in, unanimous
from ..hardware import Link
from ..hardware.links import PCIE_4
from ..torch_internals import unobserved
from .homes import DDR4, Host, OffloadError

NVME = Link("NVMe", 100e-6, 3.2e9)  # assumed: a drive on 4 lanes of PCIe 3 (3.9 GB/s at most)


class File(NamedTuple):
    path: Path
    checksum: int  # of what was written


class Disk(Host):
    """Files in a new folder of its own in ``folder``, one for each tensor; they are gone with the home.

    That is when it is closed or collected, when the process group that it was made in is destroyed (at the end of a
    run), and when the process ends; one that is killed leaves them. A step writes new files, and forgets the old ones
    when all are there: so there must be room for twice what is kept. Files are written and read in whole, not while
    compute goes on, and never through a link.

    Each has a checksum (CRC-32: any error within 32 bits is found, of others all but one in 2^32), which is compared
    whenever it is read, before anybody computes with it. That is a second pass over the bytes, at about 1 GB/s.
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
        """Another process gets a home of its own beside this one."""
        if self.files:
            raise TypeError("a Disk that keeps something cannot be copied to another process")
        return Disk, (self.folder.parent, self.link, self.memory, self.disk)

    def put_away(self, tensor):
        with unobserved():
            self._keep(tensor)

    def drop(self, tensor):
        self.dropped.add(tensor)
        if not self.changing:
            self._commit()

    @contextmanager
    def at_work(self, tensors, changed=True):
        with super().at_work(tensors, changed):
            try:
                for tensor in tensors():
                    self._read(tensor)
                yield
                for tensor in tensors() if changed else ():
                    self._keep(tensor)
            finally:
                self.arrived()  # whatever is copied from there
                for tensor in tensors():
                    _empty(tensor)

    @contextmanager
    def all_or_nothing(self, group):
        self.changing = True
        try:
            with unanimous("offload failed; no rank was modified", group, OffloadError):
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
        """To a new file; the memory is free then."""
        self.number += 1
        path, data = self.folder / f"tensor {self.number}", _bytes_of(tensor)
        file = File(path, zlib.crc32(data))
        try:
            with _create(path) as opened:
                opened.write(data)
        except OSError as error:
            _unlink([file])
            raise OffloadError(
                error.errno, f"{tensor.nbytes} bytes cannot be written: {error.strerror}", str(path)
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
                error.errno, f"a shard of {nbytes} bytes is gone: {error.strerror}", str(path)
            ) from error
        if found != nbytes or rest:
            raise OffloadError(None, f"a shard has {os.path.getsize(path)} bytes, but {nbytes} were written", str(path))
        if zlib.crc32(data) != checksum:
            raise OffloadError(
                None, f"a shard of {nbytes} bytes is not what was written: its checksum differs", str(path)
            )
        self._charge("from disk", nbytes, self.disk)


def _create(path):
    """A file that is not there yet, not even as a link."""
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
    """Its memory, to read into and write from. (A storage that NumPy has seen can no longer be freed.)"""
    return memoryview((ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr()))


def _empty(tensor):
    tensor.untyped_storage().resize_(0)
