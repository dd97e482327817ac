"""Virtual time, where it is the point: on devices that compute in no time, so that only messages take any.

A message takes alpha + n/beta (hardware/costs.py); what a program takes is then the longest chain of messages that
follow one another.
"""

from ..hardware.presets import A100_NODE

CLUSTER = A100_NODE.communication_alone
EXACT = 1 + 1e-6  # sums of floating point numbers
ROOM = 1.05  # where ranks may post many messages at once, which then share a link for some of the time


def draw_timeline(trial, cluster=CLUSTER):
    def draw():
        from ..visuals import timeline  # only now: matplotlib takes its time

        return timeline(trial.run.on(cluster))

    return draw
