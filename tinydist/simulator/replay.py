"""A recorded run, put on a cluster."""

from . import contention
from .clock import Clock
from .uncollected import uncollected


def replay(record, cluster):
    """Its Trace: what happened when."""
    cluster.check_ranks(len(record.programs))
    clock = contention.Clock if cluster.contention else Clock
    with uncollected():
        return clock(record.programs, cluster).run()
