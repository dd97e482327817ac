"""What was held, and what the products of matrices were: of which tiles, how often."""

from dataclasses import dataclass

from ....simulator.record import Operator
from ...errors import Wrong
from ...memory import draw_memory, held_besides

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


@dataclass(frozen=True)
class Tiled:
    """The work of a right answer."""

    seen: int  # pairs of a query and a key that it sees
    visited: int  # pairs in the tiles that have one of those
    tiles: int
    length: int  # of a tile
    width: int  # 2 FLOPs for each number of a pair
    products: int  # for each tile


def products(trial):
    """FLOPs of each product of matrices. Torch counts none for those of vectors."""
    return [entry.flops for entry in trial.run.record.programs[0] if isinstance(entry, Operator) and entry.flops]


def visits(trial, work):
    """Each tile once, by as many products as it needs."""
    flops, pair = products(trial), 2 * work.width
    if sum(flops) < pair * work.seen:
        raise Wrong(
            f"products of matrices were seen for {sum(flops) // pair} of the {work.seen} pairs of a query and a key "
            "that it sees. NumPy, Python's lists, (a * b).sum() and products of vectors lie outside of the meter: "
            "multiply matrices of torch, with @"
        )
    enough = f"{work.products} a tile, {work.products * work.tiles} in all"
    if sum(flops) > pair * work.visited:
        raise Wrong(
            f"your {len(flops)} products of matrices cost {sum(flops):,} FLOPs, where {pair * work.visited:,} are "
            f"enough: those of {enough}. Is a tile visited that no query sees, or is something computed more often "
            "than once a tile?"
        )
    if len(flops) > work.products * work.tiles:
        raise Wrong(
            f"you multiply matrices {len(flops)} times, where {enough}, are enough: `tile` is {work.length}. Are your "
            "tiles as long?"
        )
