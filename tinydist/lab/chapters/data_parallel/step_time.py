"""The time of a step whose all-reduces overlap with backward, where only matrix products and messages take any.

A product takes ``PRODUCT`` seconds, and backward two a layer, but one for the first, whose input needs no gradient. An
all-reduce starts when its bucket is full, or when the one before has ended:

    step = max(backward, communication) + a tail
"""

import math

from ....hardware import Cluster, Device, Link
from ....hardware.costs import ring_all_reduce
from ....simulator.record import Issue, Operator, Wait
from ...errors import Wrong
from ...seconds import EXACT, draw_timeline
from .layers import LAYER, ROWS, WIDTH

PRODUCT = 10e-6  # seconds
PRODUCTS = Device("products", {"float32": 2 * ROWS * WIDTH * WIDTH / PRODUCT}, math.inf, math.inf)
SLOW = Link("a link on which all-reduces take longer than backward", 1e-6, LAYER / 25e-6)
FAST = Link("a link on which backward takes longer than all-reduces", 0.1e-6, LAYER / 2e-6)


def overlapped_seconds(counts, ranks, link):
    """A step of a Chain: each all-reduce starts when its bucket is full, or when the one before has ended."""
    now = end = sum(counts) * PRODUCT  # forward
    for number, count in enumerate(counts, start=1):
        now += (2 * count - (number == len(counts))) * PRODUCT
        end = max(end, now) + ring_all_reduce(count * LAYER, ranks, link)
    return end


def in_time(trial):
    counts, p = trial.case.expected[1], trial.case.ranks
    for link in (SLOW, FAST):
        cluster = Cluster(PRODUCTS, p, link)
        took, right = trial.run.on(cluster).seconds, overlapped_seconds(counts, p, link)
        if took > right * EXACT:
            raise Wrong(
                f"on {link}, a step takes {took * 1e6:.1f} us of virtual time, where {right * 1e6:.1f} us are enough: "
                f"{too_late(trial)}",
                draw_timeline(trial, cluster),
            )


def too_late(trial):
    """Where the first of them stands: all-reduces behind backward, waits inside of it."""
    program = trial.run.record.programs[0]
    places = {kind: [i for i, entry in enumerate(program) if isinstance(entry, kind)] for kind in (Issue, Wait)}
    backward_ends = max(i for i, entry in enumerate(program) if isinstance(entry, Operator) and entry.flops)
    if places[Issue][0] > backward_ends:
        return "the first all-reduce starts when backward has ended. Start each in the hook that makes its bucket full"
    if places[Wait][0] < backward_ends:
        return "a wait stands in the middle of backward, and holds it up. Start with async_op=True, and wait in finish"
    return "an all-reduce starts later than its bucket is full"
