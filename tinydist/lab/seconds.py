"""Virtual time, where it is the point: on devices that compute in no time, so that only messages take any.

A message takes alpha + n/beta (hardware/costs.py); what a program takes is then the longest chain of messages that
follow one another.
"""

from ..hardware.costs import message_seconds
from ..hardware.presets import A100_NODE
from .errors import Wrong

CLUSTER = A100_NODE.communication_alone
EXACT = 1 + 1e-6  # sums of floating point numbers
ROOM = 1.05  # where ranks may post many messages at once, which then share a link for some of the time


def steps_seconds(steps, nbytes):
    """So many messages, one after another."""
    return steps * message_seconds(nbytes, CLUSTER.inside)


def takes_at_most(trial, seconds, formula, advice, room=EXACT):
    took = trial.run.on(CLUSTER).seconds
    if took > seconds * room:
        raise Wrong(
            f"it takes {took * 1e6:.2f} us of virtual time on an A100 node, where {formula} = {seconds * 1e6:.2f} us: "
            f"{took / seconds:.2f} times as long. {advice}",
            draw_timeline(trial),
        )


def draw_timeline(trial, cluster=CLUSTER):
    def draw():
        from ..visuals import timeline  # only now: matplotlib takes its time

        return timeline(trial.run.on(cluster))

    return draw
