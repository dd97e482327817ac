"""Replays a recorded run on a cluster: its Trace."""

from . import contention
from .clock import VirtualClock
from .trace import uncollected


def replay(record, cluster):
    """Its Trace: what happened when."""
    cluster.check_ranks(len(record.programs))
    clock = contention.ContendedClock if cluster.contention else VirtualClock
    with uncollected():
        return clock(record.programs, cluster).run()
