"""What to recompute, so that a step fits a budget of bytes and computes the least again.

    layers      1     2     3     4     5     6         backward of the run (4 5) begins: held are
    runs      keep  keep (3)  ( 4     5  ) keep             all of 1 and 2, the input of 3, and all of 4 and 5
    held        a     a   i     i           a

A run is one layer that is kept, or some that are recomputed together from the first one's input. While the backward of
a run runs, it holds all its activations, and the runs before it hold what they keep; those after it are gone.

    bytes = max over runs (held by the runs before + all activations of the run)      seconds = those recomputed

Dynamic programming from the first layer on: of all ways to cut the first n layers, only those are kept of which no
other holds fewer bytes in fewer seconds. Each layer is computed twice at most. (Trees of recomputation take fewer bytes
and more seconds: Griewank and Walther 2000, Revolve.)

Source: Chen et al. 2016, section 4.4 (a budget for a run); Jain et al. 2020, Checkmate, has the general problem.
"""

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from ..rules import amount, count, each_of, flag, validate


@validate(input=amount, kept=amount, seconds=amount)
@dataclass(frozen=True)
class Layer:
    """``input``: bytes with which its forward can be computed again; ``kept``: bytes that its backward needs, with the
    input; ``seconds``: of its forward."""

    input: float
    kept: float
    seconds: float

    def __post_init__(self):
        if self.input > self.kept:
            raise ValueError(f"Layer: input ({self.input:g}) must be <= kept ({self.kept:g}), which includes it")


@validate(layers=count, recomputed=flag)
@dataclass(frozen=True)
class Run:
    layers: int
    recomputed: bool


class Choice(NamedTuple):
    """``bytes``: the most that is held at once; ``seconds``: computed again."""

    runs: list
    bytes: float
    seconds: float


@validate(layers=each_of(Layer), budget=amount)
def least_recomputation(layers, budget):
    """The ``Choice`` with the fewest seconds within ``budget`` bytes.

    Raises ``ValueError`` if none fits, with the least budget that does.
    """
    found = cheapest(layers, budget)
    if found is None:
        raise ValueError(
            f"least_recomputation: {budget:g} bytes are not enough, at least {least_bytes(layers):g} are needed"
        )
    return found


def cheapest(layers, budget, by="seconds"):
    """The choice with the least seconds, or the least peak; None: nothing fits."""
    fronts = [[Way(0, 0, 0, None)]]  # of the first n layers: bytes held, seconds, the peak so far, and the last run
    for end in range(1, len(layers) + 1):
        ways = []
        for start in range(end):
            held, alive, seconds = run_costs(layers, start, end)
            for number, way in enumerate(fronts[start]):
                peak = way.held + alive
                if peak > budget:
                    continue
                run = start, number, True
                ways.append(Way(way.held + held, way.seconds + seconds, max(way.peak, peak), run))
                if end == start + 1:
                    ways.append(Way(peak, way.seconds, max(way.peak, peak), (start, number, False)))
        fronts.append(not_dominated(ways, by))
    if not fronts[-1]:
        return None
    best = min(fronts[-1], key=attrgetter(by))
    return Choice(runs_to(best, len(layers), fronts), best.peak, best.seconds)


class Way(NamedTuple):
    held: float
    seconds: float
    peak: float
    last: tuple | None  # where the last run begins, which way led there, and whether the run is recomputed


def run_costs(layers, start, end):
    """Of layers start to end as one recomputed run: bytes held until its backward, bytes in its backward, seconds."""
    run = layers[start:end]
    return run[0].input, sum(layer.kept for layer in run), sum(layer.seconds for layer in run)


def not_dominated(ways, by):
    """Those than which no other holds fewer bytes for less."""
    left, least = [], math.inf
    for way in sorted(ways, key=attrgetter("held", by)):
        if getattr(way, by) < least:
            left.append(way)
            least = getattr(way, by)
    return left


def runs_to(way, end, fronts):
    runs = []
    while way.last is not None:
        start, number, recomputed = way.last
        runs.append(Run(end - start, recomputed))
        way, end = fronts[start][number], start
    return runs[::-1]


def least_bytes(layers):
    """The least budget that any choice fits."""
    return cheapest(layers, math.inf, by="peak").bytes
