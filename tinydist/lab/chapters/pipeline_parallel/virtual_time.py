"""What a worker takes in virtual time: a forward 1 s, a backward 2 s, messages nothing.

The first stage's backward takes 1/8 s less: its first layer has no gradient of an input to compute.
"""

import math

from ....hardware import Cluster, Device, Link
from ...errors import Wrong
from ...messages import many
from ...seconds import draw_timeline
from .watched_stage import LAYERS, ROWS, WIDTH

SECOND = Device("a forward in a second", {"float32": LAYERS * 2 * ROWS * WIDTH * WIDTH}, math.inf, math.inf)
WIRES = Link("wires", 0.0, math.inf, "mesh")


def takes_as_long(trial):
    p, count = trial.case.ranks, trial.case.expected
    took, right = seconds(trial), 3 * (count + p - 1)
    if took > right + 1e-6:
        raise Wrong(
            f"with F = 1 s and B = 2 s it takes {took:.3g} s of virtual time, where 1F1B takes (M+P-1)(F+B) = {right} "
            f"s{too_few_ahead(trial)}. Keep the order of 1F1B, and mend the sends",
            draw_timeline(trial, cluster(p)),
        )


def cluster(ranks):
    return Cluster(SECOND, ranks, WIRES)


def seconds(trial):
    return trial.run.on(cluster(trial.case.ranks)).seconds


def too_few_ahead(trial):
    for rank, (stage, *_) in enumerate(trial.arguments):
        right = min(trial.case.ranks - rank, trial.case.expected)
        if stage.ahead < right:
            return f": rank {rank} does {many(stage.ahead, 'forward')} before its first backward, and not {right}"
    return ": a rank waits, although it could do another pass"
