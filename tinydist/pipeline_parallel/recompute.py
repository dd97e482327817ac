"""Forward once more, in backward, so that only inputs are held between: the same numbers, dropout's included.

Held for each microbatch between F and B: its input, instead of all that backward needs. A third more compute.
Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016; torch.utils.checkpoint.
"""

import torch
from torch.utils.checkpoint import get_device_states, set_device_states

from ..simulator.names import region
from .backward import edge_of


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
