"""The yardstick of NCCL's benchmarks: algorithm bandwidth, bus bandwidth, and a link fitted to them.

Algorithm bandwidth is size / time. It falls as ranks are added, on the same wires. Bus bandwidth corrects for
that: it is what each rank must have sent per second, whatever the algorithm. If the switches do the sums (NVLink
SHARP), ranks send less than that, and the number may pass the speed of the wire.

Source: NVIDIA/nccl-tests@a0b82b22 doc/PERFORMANCE.md (read).
"""

from ..rules import amount, count, positive, rate, takes
from .catalogue import look_up
from .links import Link

# bus bandwidth / algorithm bandwidth, of p ranks
BUS_FACTORS = {
    "all_reduce": lambda p: 2 * (p - 1) / p,
    "reduce_scatter": lambda p: (p - 1) / p,
    "all_gather": lambda p: (p - 1) / p,
    "all_to_all": lambda p: (p - 1) / p,
    "gather": lambda p: (p - 1) / p,
    "scatter": lambda p: (p - 1) / p,
    "broadcast": lambda p: 1.0,
    "reduce": lambda p: 1.0,
    "send": lambda p: 1.0,
}


@takes(ranks=count)
def bus_factor(collective, ranks) -> float:
    """The part of the size that a rank has to send: 2(p-1)/p for an all-reduce."""
    return look_up("collective", BUS_FACTORS, collective)(ranks)


@takes(nbytes=amount, seconds=positive)
def algorithm_bandwidth(nbytes, seconds) -> float:
    """Bytes/s: size / time."""
    return nbytes / seconds


def bus_bandwidth(collective, nbytes, seconds, ranks) -> float:
    """Bytes/s: size / time times the factor of the collective."""
    return algorithm_bandwidth(nbytes, seconds) * bus_factor(collective, ranks)


@takes(latency=amount, bandwidth=rate, ranks=count)
def fitted_link(latency, bandwidth, ranks, name="fitted") -> Link:
    """The link on which a ring all-reduce of n bytes takes ``latency + 2(p-1)/p n / bandwidth``.

    That is the line through a benchmark's points: ``latency`` is the time of a tiny all-reduce, ``bandwidth`` the
    bus bandwidth of a huge one. A ring has 2(p-1) steps, each with its share of the latency.
    """
    if ranks < 2:
        raise ValueError(f"fitted link: an all-reduce must have 2 or more ranks to send anything, got {ranks}")
    return Link(name, latency / (2 * (ranks - 1)), bandwidth)
