"""Forward once more, so that between forward and backward only inputs are held: the same numbers, dropout's included.

    before      F ... R B       as an action of the schedule, right before backward: the rank runs forward again while
                                it waits for the gradient (GPipe)
    inside      F ...  RB       in backward itself, once the gradient is there (torch.utils.checkpoint, Megatron-LM)

A third more compute, and a bubble of (P-1)(F+B) before, (P-1)(2F+B) inside, in GPipe and 1F1B. Held for each microbatch
between F and B: its input, instead of all that backward needs; while its backward runs or waits, all of it.
Sources: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016; Huang et al., GPipe, 2019, section 2.3.
"""

from dataclasses import replace

import torch
from torch.utils.checkpoint import get_device_states, set_device_states

from ..annotate import region
from ..rules import takes
from .actions import BACKWARD, BACKWARD_INPUT, RECOMPUTE
from .backward import edge_of
from .schedule import Schedule


@takes(schedule=Schedule)
def with_recomputation(schedule):
    """R right before each backward that has none yet."""
    there = {part for _, _, part in schedule.all_parts() if part.kind == RECOMPUTE}
    programs = [
        tuple(each for step in program for each in [*(set(again(step)) - there), step]) for program in schedule.programs
    ]
    return replace(schedule, programs=tuple(programs))


def again(each):
    return [part._replace(kind=RECOMPUTE) for part in each.parts if part.kind in (BACKWARD, BACKWARD_INPUT)]


class Again:
    """``run(input)`` without a graph now, in ``output``; and with one when ``edge()`` asks where backward begins."""

    def __init__(self, run, input):
        self.run, self.input = run, input
        self.state = random_state(input)
        with torch.no_grad():
            self.output = run(input)

    def edge(self):
        now = random_state(self.input)
        set_random_state(self.state)
        try:
            with region("recompute"):
                return edge_of(self.run(self.input))
        finally:
            set_random_state(now)


def random_state(tensor):
    """Of the processor, and of the device that the tensor is on."""
    return torch.get_rng_state(), *get_device_states(tensor)


def set_random_state(state):
    processor, devices, states = state
    torch.set_rng_state(processor)
    set_device_states(devices, states)
