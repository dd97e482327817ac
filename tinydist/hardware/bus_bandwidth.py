"""Algorithm bandwidth and bus bandwidth, as defined by nccl-tests, and a link fitted to such measurements.

Algorithm bandwidth is size / time. It falls as ranks are added, on the same links. Bus bandwidth corrects for
that: the bytes per second that each rank must send, whatever the algorithm. If switches reduce in the network (NVLink
SHARP), ranks send less, and bus bandwidth may exceed the link speed.

Source: NVIDIA/nccl-tests@a0b82b22 doc/PERFORMANCE.md (read).
"""

from ..rules import amount, count, positive, rate, validate
from .links import Link
from .lookup import look_up

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


@validate(ranks=count)
def bus_factor(collective, ranks) -> float:
    """The part of the size that a rank has to send: 2(p-1)/p for an all-reduce."""
    return look_up("collective", BUS_FACTORS, collective)(ranks)


@validate(nbytes=amount, seconds=positive)
def algorithm_bandwidth(nbytes, seconds) -> float:
    """Bytes/s: size / time."""
    return nbytes / seconds


def bus_bandwidth(collective, nbytes, seconds, ranks) -> float:
    """Bytes/s: size / time times the factor of the collective."""
    return algorithm_bandwidth(nbytes, seconds) * bus_factor(collective, ranks)


@validate(latency=amount, bandwidth=rate, ranks=count)
def fitted_link(latency, bandwidth, ranks, name="fitted") -> Link:
    """The link on which a ring all-reduce of n bytes takes ``latency + 2(p-1)/p n / bandwidth``.

    That is the line through a benchmark's points: ``latency`` is the time of a tiny all-reduce, ``bandwidth`` the
    bus bandwidth of a huge one. A ring has 2(p-1) steps, each with its share of the latency.
    """
    if ranks < 2:
        raise ValueError(f"fitted_link: ranks must be >= 2 for an all-reduce to send anything, got {ranks}")
    return Link(name, latency / (2 * (ranks - 1)), bandwidth)
