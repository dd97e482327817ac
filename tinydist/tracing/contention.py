"""Contention: while a collective runs on a device, its products are slower (``cluster.at(contention=0.16)``).

    compute        | product                       |
    all-reduce              | ================================ |
    speed            1        1 - contention                       the rest of the product takes longer

Overlap is not free: kernels that communicate take multiprocessors, and memory bandwidth, from those that compute. Here
a constant part of the peak FLOP/s is gone from a collective's start to its end, on each of its ranks. An operator that
waits for memory loses nothing, nor do messages between two ranks take anything; nor does a rank that waits in NCCL's
kernel for one that is late, which in truth it does. Sources of its size: Cluster.at.
"""

from collections import Counter

from . import clock


class Kernel:
    """A product under way. ``left`` is the part of it that is still to come."""

    def __init__(self, alone, contended):
        self.paces = alone, contended  # seconds for all of it
        self.left, self.since, self.pace, self.version = 1.0, None, None, 0


class Clock(clock.Clock):
    def __init__(self, programs, cluster):
        super().__init__(programs, cluster)
        self.slowed = cluster.device.at(matmul=1 - cluster.contention)
        self.kernels = {}  # rank -> its product under way
        self.ended_at = {}  # rank -> when its last product has
        self.collectives = Counter()  # rank -> how many run on its device

    def end_of(self, operator, rank, now):
        """Nobody knows when a product ends until it has."""
        if rank in self.ended_at:
            return self.ended_at.pop(rank)
        if not operator.flops or operator.seconds is not None:
            return super().end_of(operator, rank, now)
        kernel = Kernel(self.kernel(operator, self.cluster.device), self.kernel(operator, self.slowed))
        self.at(self.start_of(rank, now), self.begin, rank, kernel)
        return None

    def begin(self, now, rank, kernel):
        self.kernels[rank], kernel.since = kernel, now
        self.go_on(now, rank)

    def go_on(self, now, rank):
        """At the pace of this moment."""
        kernel = self.kernels[rank]
        if kernel.pace:
            kernel.left -= (now - kernel.since) / kernel.pace
        kernel.pace, kernel.since = kernel.paces[self.collectives[rank] > 0], now
        kernel.version += 1
        self.at(now + kernel.left * kernel.pace, self.finish, rank, kernel, kernel.version)

    def finish(self, now, rank, kernel, version):
        if version == kernel.version:  # else its pace has changed since
            del self.kernels[rank]
            kernel.version, self.ended_at[rank] = None, now
            self.advance(rank)

    def start(self, now, flow):
        self.occupy(now, flow.transfer, 1)
        super().start(now, flow)

    def end(self, now, flow):
        self.occupy(now, flow.transfer, -1)
        super().end(now, flow)

    def occupy(self, now, transfer, more):
        if transfer.name != "message":
            for rank in sorted(set(transfer.ranks)):
                self.collectives[rank] += more
                if rank in self.kernels:
                    self.go_on(now, rank)
