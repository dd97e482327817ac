"""A rank's view of its machine: which GPUs it sees, which one is current, and their random numbers."""

import os
import threading

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ..tracing.scopes import of_thread as observed
from .placement import Placement
from .random_numbers import PhiloxState


class RankGPUs:
    """``cluster``: whose GPUs they are. ``clock``: of all ranks."""

    def __init__(self, cluster, rank, record, clock, fake=None, values=None):
        self.cluster, self.rank, self.record = cluster, rank, record
        self.fake, self.values = fake, values or {}  # forecasts (fake.py): the mode, and numbers that are given
        self.clock = clock
        self.node = cluster.node_of(rank)
        self.ledger = record.ledgers[rank]
        self.placement = Placement(self.ledger)
        self.index, self.is_set = 0, False  # the current one; has the program chosen it?
        self.limit = cluster.device.memory  # bytes that the rank may hold
        self.generators = {}  # device -> what its operators draw from
        self.pinned = WeakIdKeyDictionary()  # tensors of the host
        self.ranges = []  # of nvtx, open
        self.streams = []  # references to those that the program has made
        self.history = None  # the place in the record since which allocations are kept (memory_snapshot.py)
        self.observer = None  # of its operators

    @property
    def visible(self):
        """The node's GPUs that CUDA_VISIBLE_DEVICES leaves, by their number on the node."""
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        if named is None:
            return range(self.cluster.devices_per_node)
        numbers = [int(number) for number in named.split(",") if number.strip().isdigit()]
        return [number for number in numbers if number < self.cluster.devices_per_node]

    @property
    def current(self):
        """Of all ranks the first, while DTensor finds shapes: torch keeps for all what it found for one."""
        return torch.device("cuda", 0 if observed.paused else self.index)

    def device(self, named):
        """The device that a program names: a number, "cuda", a torch.device; None is the current one."""
        if named is None:
            return self.current
        if isinstance(named, int):
            named = self.index if named < 0 else named
            named = torch.device("cuda", named)
        named = torch.device(named)
        if named.type != "cuda":
            return named
        if named.index is None:
            return self.current
        if named.index >= len(self.visible):
            seen = len(self.visible)
            raise torch.AcceleratorError(
                f"CUDA error: invalid device ordinal\nrank {self.rank} asks for {named}, and sees "
                + (f"cuda:0 to cuda:{seen - 1}" if seen else "no GPU")
            )
        return named

    def generator(self, device):
        """That of a GPU, which its operators draw from."""
        if device not in self.generators:
            self.generators[device] = PhiloxState(torch.initial_seed())
        return self.generators[device]

    def go_on_from(self, earlier):
        """What the rank has left on its GPUs in an earlier run is there; None: it has not run."""
        if earlier is None:
            return
        self.index, self.is_set, self.generators = earlier.index, earlier.is_set, earlier.generators
        for holding in earlier.ledger.alive.values():
            if (storage := holding()) is not None:
                self.ledger.device = holding.device
                self.ledger.adopt(storage, holding.scope)
                self.ledger.alive[storage._cdata].purpose = holding.purpose

    def now(self):
        """Virtual time, as far as all ranks have come."""
        return self.clock.now(self.rank)

    def times_of(self, *signals):
        self.now()
        return [self.clock.ended[signal] for signal in signals]

    def note(self, asked, got):
        """For the summary."""
        self.record.replaced.setdefault(asked, got)


class OfThread(threading.local):
    gpus = None


of_thread = OfThread()  # of the rank that runs in this thread, or that has started it


def mine():
    if of_thread.gpus is None:
        raise RuntimeError("torch.cuda: this thread is no rank, and has no GPU. Use the GPU in the rank's own thread")
    return of_thread.gpus
