"""The key-value store of a process group, shared by the ranks of one process."""

import torch.distributed as dist

from .scheduler import Waitable
from .work import seconds


class StoreKey(Waitable):
    """An event: a key of the store that a rank waits for."""

    __slots__ = ("name",)

    def __init__(self, name):
        super().__init__()
        self.name = name

    def wait_in_words(self):
        return f"store.wait({self.name!r})", "no rank has set this key"


class SharedStore(dist.Store):
    """A store in memory whose wait lets other ranks run. Values are bytes."""

    def __init__(self, scheduler):
        super().__init__()
        self.scheduler = scheduler
        self.values = {}
        self.awaited = {}  # name -> StoreKey
        self.seconds = None  # that a wait may take

    def set(self, key, value):
        self.values[key] = as_bytes(value)
        if key in self.awaited:
            self.scheduler.set(self.awaited.pop(key))

    def get(self, key):
        self.wait([key])
        return self.values[key]

    def wait(self, keys, timeout=None):
        for key in keys:
            while key not in self.values:
                self.scheduler.wait(self.awaited.setdefault(key, StoreKey(key)), seconds(timeout) or self.seconds)

    def add(self, key, amount):
        total = int(self.values.get(key, b"0")) + amount
        self.set(key, str(total))
        return total

    def compare_set(self, key, expected, desired):
        found = self.values.get(key, b"")
        if found == as_bytes(expected):
            self.set(key, desired)
        return self.values.get(key, as_bytes(expected))

    def check(self, keys):
        self.scheduler.pause()
        return all(key in self.values for key in keys)

    def delete_key(self, key):
        return self.values.pop(key, None) is not None

    def num_keys(self):
        return len(self.values)

    def set_timeout(self, timeout):
        self.seconds = seconds(timeout)


def as_bytes(value):
    return value.encode() if isinstance(value, str) else bytes(value)
