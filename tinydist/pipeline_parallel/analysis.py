"""What a schedule takes: how long ranks are idle, what they hold, how many messages.

Two bubbles are in use, and a number without its definition means nothing. With P ranks and M microbatches of 1F1B:

    bubble              idle part of the step      1 - busy / (P makespan)            (P-1) / (M+P-1)
    bubble_over_ideal   idle time over work        (makespan - busiest) / busiest     (P-1) / M

and idle seconds can be counted in the makespan (``idle``), or from a rank's first pass to its last (``idle_in_span``):
the ranks of a zero-bubble schedule begin and end one after another, so only the latter is zero.

Activations are counted in microbatches of one stage, from the beginning of forward to the end of backward. Between I
and W, ``kept_for_weights`` of them stay: 1 by default, as where one graph holds all; 32 / (34 + 5as/h) in a transformer
(Qi et al., Zero Bubble Pipeline Parallelism, 2024, table 1).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..rules import takes
from .actions import REDUCE, Action
from .costs import Costs
from .recompute import with_recomputation
from .replay import BEFORE, Walk, follow
from .schedule import Schedule


@dataclass(frozen=True)
class Analysis:
    """``start[rank]``, ``end[rank]``, ``live[rank]``: of each action of the rank's program, when it begins and ends, in
    seconds, and the activations held meanwhile, in microbatches of one stage. ``reductions``: REDUCE_GRAD -> from when
    to when gradients are under way."""

    schedule: Schedule
    start: list[np.ndarray]
    end: list[np.ndarray]
    live: list[np.ndarray]
    reductions: dict[Action, tuple[float, float]]

    @cached_property
    def makespan(self) -> float:
        return max(float(end.max(initial=0.0)) for end in self.end)

    @cached_property
    def busy(self) -> list[float]:
        return [float((end - start).sum()) for start, end in zip(self.start, self.end)]

    @property
    def idle(self) -> list[float]:
        """Seconds by rank, within the makespan."""
        return [self.makespan - busy for busy in self.busy]

    @property
    def idle_in_span(self) -> list[float]:
        """Seconds by rank, between the beginning of its first pass and the end of its last."""
        passes = [end > start for start, end in zip(self.start, self.end)]  # not messages, which are posted in no time
        begin = [float(start[some].min(initial=np.inf)) for start, some in zip(self.start, passes)]
        end = [float(end[some].max(initial=0.0)) for end, some in zip(self.end, passes)]
        return [max(0.0, last - first - busy) for first, last, busy in zip(begin, end, self.busy)]

    @property
    def bubble(self) -> float:
        """The idle part of all ranks' time."""
        return sum(self.idle) / (len(self.busy) * self.makespan)

    @property
    def bubble_over_ideal(self) -> float:
        """How much longer than the work of the busiest rank."""
        return (self.makespan - max(self.busy)) / max(self.busy)

    @property
    def peak(self) -> list[float]:
        """The most activations that each rank holds at once."""
        return [float(live.max()) for live in self.live]

    @property
    def messages(self) -> list[list[int]]:
        """Messages of activations and their gradients, [source][destination]."""
        rank_of, ranks = self.schedule.rank_of, self.schedule.ranks
        count = [[0] * ranks for _ in range(ranks)]
        for stage in range(self.schedule.stages - 1):
            here, there = rank_of[stage], rank_of[stage + 1]
            for source, destination in {(here, there), (there, here)} if here != there else ():
                count[source][destination] += self.schedule.microbatches
        return count


@takes(schedule=Schedule, costs=Costs)
def analyze(schedule, costs=None) -> Analysis:
    """Follow a verified schedule through time. Raises ``Stuck`` if its ranks wait in a circle."""
    costs = costs or Costs()
    if costs.recompute == BEFORE:
        schedule = with_recomputation(schedule)
    walks = [Walk(schedule, rank, costs) for rank in range(schedule.ranks)]
    aside = [Walk(schedule, walk.rank, costs, walk.reductions) for walk in walks]
    follow(walks + aside)
    ends = [walk.of_actions(np.array(walk.ends)) for walk in walks]
    starts = [end - walk.seconds_of_actions() for end, walk in zip(ends, walks)]
    reductions = {
        each._replace(kind=REDUCE): (end - seconds, end)
        for walk in aside
        for each, end, seconds in zip(walk.program, walk.ends, walk.seconds.tolist())
    }
    return Analysis(schedule, starts, ends, [walk.live() for walk in walks], reductions)
