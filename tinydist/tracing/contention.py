"""Contention: matmuls run slower on a device while a collective overlaps (``cluster.at(contention=0.16)``).

    compute        | matmul                        |
    all-reduce              | ================================ |
    speed            1        1 - contention                       the rest of the matmul takes longer

Overlap is not free: communication kernels take SMs and memory bandwidth from compute kernels. Here a constant fraction
of the peak FLOP/s is lost from a collective's start to its end, on each of its ranks. Memory-bound operators are not
affected, and point-to-point messages have no effect; nor has a rank that waits in NCCL's kernel for a late one,
which on real hardware it has. Sources of the value: Cluster.at.
"""

from collections import Counter

from . import clock


class Kernel:
    """A matmul in progress. ``left`` is its remaining fraction."""

    def __init__(self, alone, contended):
        self.paces = alone, contended  # seconds for all of it
        self.left, self.since, self.pace, self.version = 1.0, None, None, 0


class ContendedClock(clock.VirtualClock):
    def __init__(self, programs, cluster):
        super().__init__(programs, cluster)
        self.slowed = cluster.device.at(matmul=1 - cluster.contention)
        self.kernels = {}  # lane -> its matmul in progress
        self.ended_at = {}  # lane -> when its last matmul ended
        self.collectives = Counter()  # rank -> how many run on its device

    def end_of(self, operator, lane, now):
        """The end of a matmul is unknown until it is reached."""
        if lane in self.ended_at:
            return self.ended_at.pop(lane)
        if not operator.flops or operator.seconds is not None:
            return super().end_of(operator, lane, now)
        kernel = Kernel(self.kernel(operator, self.cluster.device), self.kernel(operator, self.slowed))
        self.at(self.start_of(lane, now), self.begin, lane, kernel)
        return None

    def begin(self, now, lane, kernel):
        self.kernels[lane], kernel.since = kernel, now
        self.go_on(now, lane)

    def go_on(self, now, lane):
        """At the pace of this moment."""
        kernel = self.kernels[lane]
        if kernel.pace:
            kernel.left -= (now - kernel.since) / kernel.pace
        kernel.pace, kernel.since = kernel.paces[self.collectives[lane.rank] > 0], now
        kernel.version += 1
        self.at(now + kernel.left * kernel.pace, self.finish, lane, kernel, kernel.version)

    def finish(self, now, lane, kernel, version):
        if version == kernel.version:  # else its pace has changed since
            del self.kernels[lane]
            kernel.version, self.ended_at[lane] = None, now
            self.advance(lane)

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
                for lane in self.lanes[rank]:
                    if lane in self.kernels:
                        self.go_on(now, lane)
