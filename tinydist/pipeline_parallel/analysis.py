"""Analysis of a schedule: makespan, bubble, peak activations, message count.

Two definitions of the bubble are in use; always state which. With P ranks and M microbatches of 1F1B:

    bubble              idle part of the step      1 - busy / (P makespan)            (P-1) / (M+P-1)
    bubble_over_ideal   idle time over work        (makespan - busiest) / busiest     (P-1) / M

and idle seconds can be counted in the makespan (``idle``), or from a rank's first pass to its last (``idle_in_span``):
the ranks of a zero-bubble schedule begin and end one after another, so only the latter is zero.

Activations are counted in microbatches of one stage, from the beginning of forward to the end of backward. Between I
and W, ``kept_for_weights`` of them stay: 1 by default, as where one graph holds all; 32 / (34 + 5as/h) in a transformer
(Qi et al., Zero Bubble Pipeline Parallelism, 2024, table 1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..rules import amount, each_of, one_of, part, validate
from .backward import with_recomputation
from .replay import BEFORE, INSIDE, RECOMPUTED, REDUCED, WAYS, Walk, follow
from .schedule import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, RECOMPUTE, REDUCE, STEP, Action, Schedule

Seconds = float | Sequence[float]  # of all stages, or one for each


@validate(message=amount, overlap=amount, kept_for_weights=part, recompute=one_of(RECOMPUTED), kept_inputs=part)
@dataclass(frozen=True)
class Costs:
    """Seconds of the passes of a stage over one microbatch, of a message, and of what ends a training step: the mean of
    a stage's gradients over its replicas, the optimizer's step of a stage."""

    forward: Seconds = 1.0
    backward_input: Seconds = 1.0
    backward_weight: Seconds = 1.0
    message: float = 0.0
    overlap: float | None = None  # of a forward and a backward at once; None: as long as one after the other
    kept_for_weights: float = 1.0
    reduce: Seconds = 0.0
    step: Seconds = 0.0
    recompute: str | None = None  # as in backward.py
    kept_inputs: float = 0.0  # of a stage's activations, those which recomputation begins with

    def by_stage(self, stages):
        """Seconds, [kind][stage]."""
        names = ("forward", "backward_input", "backward_weight", "reduce", "step")
        forward, backward_input, backward_weight, reduce, step = (self._each(name, stages) for name in names)
        backward_input = backward_input + forward * (self.recompute == INSIDE)
        seconds = {FORWARD: forward, BACKWARD: backward_input + backward_weight, BACKWARD_INPUT: backward_input}
        seconds |= {BACKWARD_WEIGHT: backward_weight, RECOMPUTE: forward, REDUCED: reduce, STEP: step}
        return np.stack([seconds.get(kind, np.zeros(stages)) for kind in WAYS])

    def _each(self, name, stages):
        seconds = getattr(self, name)
        if not (amount(seconds) or (each_of(amount)(seconds) and len(seconds) == stages)):
            rule = f"0 or more seconds, of all stages or of each of {stages}"
            raise ValueError(f"Costs: {name} must be {rule}, got {seconds}")
        return np.broadcast_to(np.asarray(seconds, dtype=float), stages)

    def held(self, recompute):
        """By kind, activations allocated when a pass begins and freed when it ends, in microbatches of one stage."""
        again = 1.0 - self.kept_inputs if recompute else 0.0
        inside = again * (recompute == INSIDE)
        taken = {FORWARD: 1.0 - again, RECOMPUTE: again, BACKWARD: inside, BACKWARD_INPUT: inside}
        given = {BACKWARD: 1.0, BACKWARD_INPUT: 1.0 - self.kept_for_weights, BACKWARD_WEIGHT: self.kept_for_weights}
        return [np.array([change.get(kind, 0.0) for kind in WAYS]) for change in (taken, given)]


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
        """Idle time of the busiest rank over its work: makespan / busiest - 1."""
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


@validate(schedule=Schedule, costs=Costs)
def analyze(schedule, costs=None) -> Analysis:
    """Simulate a verified schedule in time. Raises ``Stuck`` on a deadlock."""
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
