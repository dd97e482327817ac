"""What was held, and which tiles were visited."""

import math

from ....simulator.record import Operator
from ...errors import Wrong
from ...memory import draw_memory, held_besides
from ...messages import many

FLOAT = 4  # bytes


def holds_tiles(trial, numbers, whole):
    """At most so many numbers besides the arguments; all the scores are ``whole``."""
    (held,), allowed = held_besides(trial), FLOAT * numbers
    if held > allowed:
        raise Wrong(
            f"it holds {held:,} bytes besides its arguments, where {allowed:,} are enough. One tile of scores is there "
            f"at a time, and is added up and dropped; all of them have {FLOAT * whole:,} bytes. Which of your tensors "
            "grows with the length?",
            draw_memory(trial, 0),
        )


def flops(trial):
    """Of all products of matrices."""
    return sum(entry.flops for entry in trial.run.record.programs[0] if isinstance(entry, Operator))


def visits(trial, needed, size, numbers, why, of="positions"):
    """Only so many positions are visited, ``size`` a tile; each costs 2 FLOPs for each of ``numbers``."""
    visited = flops(trial) / (2 * numbers)
    if visited > needed:
        raise Wrong(
            f"your products of matrices are those of {visited:g} {of}, {tiles(visited, size)}, where {needed} {of}, "
            f"{tiles(needed, size)}, are enough. {why}"
        )


def tiles(positions, size):
    return f"{many(math.ceil(positions / size), 'tile')} of {size}"
