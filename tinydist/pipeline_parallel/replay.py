"""A schedule followed through time, action by action: when each ends.

A pass begins when its rank is done with the one before, and the result that it needs is there: that of another rank
after the time of a message. Of an overlap, both passes begin when both can, and both results are there when it ends.
So every time follows from the order of actions and what each takes, in one walk over them; if no rank can go on, they
wait for one another in a circle. Sends and receives take no time of a rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from ..rules import amount, each_of, part, takes
from .actions import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, RECV_B, RECV_F, SEND_B, SEND_F, Overlap

Seconds = float | Sequence[float]  # of all stages, or one for each

WAIT = "wait"  # of an overlap, for what its backward needs
KINDS = (FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, SEND_F, SEND_B, RECV_F, RECV_B, WAIT)
NUMBER = {kind: number for number, kind in enumerate(KINDS)}
# By kind: where its result is noted (B and I make the same one), where what it needs is, and of which neighbor.
MADE = np.array([0, 1, 1, 2, 3, 4, 5, 5, 5])
NEEDED = np.array([0, 1, 1, 1, -1, -1, -1, -1, 1])
NEIGHBOR = np.array([-1, 1, 1, 0, 0, 0, 0, 0, 1])
SENT, RESULTS, NOTHING = 3, 6, -1  # a send is noted 3 places after what it sends


@takes(message=amount, overlap=amount, kept_for_weights=part)
@dataclass(frozen=True)
class Costs:
    """Seconds of the passes of a stage over one microbatch, and of a message."""

    forward: Seconds = 1.0
    backward_input: Seconds = 1.0
    backward_weight: Seconds = 1.0
    message: float = 0.0
    overlap: float | None = None  # of a forward and a backward at once; None: as long as one after the other
    kept_for_weights: float = 1.0

    def by_stage(self, stages):
        """Seconds, [kind][stage]."""
        F, I, W = (self._each(name, stages) for name in ("forward", "backward_input", "backward_weight"))  # noqa: E741
        return np.stack([F, I + W, I, W] + [np.zeros(stages)] * (len(KINDS) - 4))

    def _each(self, name, stages):
        seconds = getattr(self, name)
        if not (amount(seconds) or (each_of(amount)(seconds) and len(seconds) == stages)):
            rule = f"0 or more seconds, of all stages or of each of {stages}"
            raise ValueError(f"Costs: {name} must be {rule}, got {seconds}")
        return np.broadcast_to(np.asarray(seconds, dtype=float), stages)


class Stuck(Exception):
    """No rank can go on. ``steps``: rank -> the step that it cannot begin."""

    def __init__(self, steps):
        super().__init__(steps)
        self.steps = steps


def follow(walks):
    """Let each rank go as far as it can, in turn, until all are done."""
    schedule = walks[0].schedule
    done = [None] * (RESULTS * schedule.stages * schedule.microbatches) + [0.0]  # when each result was there; NOTHING
    going = {walk.rank: walk.run(done) for walk in walks}
    while going:
        before = sum([len(walk.ends) for walk in walks])
        going = {rank: run for rank, run in going.items() if next(run, "done") != "done"}
        if going and sum([len(walk.ends) for walk in walks]) == before:
            raise Stuck({rank: walks[rank].step for rank in going})


def column(rows, field):
    return np.fromiter(map(itemgetter(field), rows), dtype=np.int64, count=len(rows))


class Walk:
    """A rank's way through its program, as columns of numbers: a schedule may have a million actions.

    An action is one row, an overlap three: wait for what backward needs, do both, and backward is done, too.
    """

    def __init__(self, schedule, rank, costs):
        self.schedule, self.rank, self.message, self.ends = schedule, rank, costs.message, []
        self.program = schedule.programs[rank]
        self.overlaps = Overlap in set(map(type, self.program))
        rows = self._rows()
        self.stage, self.microbatch = column(rows, 0), column(rows, 2)
        self.kind = np.array([NUMBER[kind] for _, kind, _ in rows], dtype=np.int64)
        self.seconds = costs.by_stage(schedule.stages)[self.kind, self.stage]
        if self.overlaps:
            self._overlap(costs)

    def _rows(self):
        if not self.overlaps:
            return self.program
        return [
            row
            for each in self.program
            for row in ([each.backward._replace(kind=WAIT), *each] if isinstance(each, Overlap) else [each])
        ]

    def _overlap(self, costs):
        """All the seconds of an overlap are its forward's."""
        (waits,) = np.nonzero(self.kind == NUMBER[WAIT])
        both = self.seconds[waits + 1] + self.seconds[waits + 2]
        self.seconds[waits + 1] = both if costs.overlap is None else costs.overlap
        self.seconds[waits + 2] = 0.0

    def run(self, done):
        """Note in ``done`` when each result is there. Yields while the next row has to wait."""
        now, ends = 0.0, self.ends
        for own, need, late, seconds in zip(*self._columns()):
            while (ready := done[need]) is None:
                yield "waits"
            ready += late
            now = (ready if ready > now else now) + seconds
            done[own] = now
            ends.append(now)

    def _columns(self):
        """By row: the number of its result, of what it needs, how long that is on its way, seconds."""
        stages, stage = self.schedule.stages, self.stage + NEIGHBOR[self.kind]
        mine = [self.schedule.rank_of.get(each, self.rank) == self.rank for each in range(-1, stages + 1)]
        away = ~np.array(mine)[stage + 1]
        place = NEEDED[self.kind] + SENT * (away & self.schedule.has_messages)
        turns = stage == stages  # the last stage's backward needs its own forward
        need = np.where(turns, self._number(0, self.stage), self._number(place, stage))
        need[(NEEDED[self.kind] < 0) | (stage < 0)] = NOTHING
        own, late = self._number(MADE[self.kind], self.stage), np.where(away, self.message, 0.0)
        return own.tolist(), need.tolist(), late.tolist(), self.seconds.tolist()

    def _number(self, place, stage):
        return (place * self.schedule.stages + stage) * self.schedule.microbatches + self.microbatch

    # From rows back to actions.

    def of_actions(self, rows, combine=None):
        """The last row of each action; or ``combine`` (a ufunc) of its rows."""
        if not self.overlaps:
            return rows
        sizes = np.array([3 if isinstance(each, Overlap) else 1 for each in self.program])
        firsts = np.cumsum(sizes) - sizes
        return combine.reduceat(rows, firsts) if combine else rows[firsts + sizes - 1]

    def seconds_of_actions(self):
        return self.of_actions(self.seconds, np.add)

    @property
    def step(self):
        """The action that is next."""
        rows = [3 if isinstance(each, Overlap) else 1 for each in self.program]
        return int(np.searchsorted(np.cumsum(rows), len(self.ends), side="right"))

    def live(self, kept):
        """What a forward takes is held from its beginning, what a backward gives back until its end."""
        change = np.array([1.0, -1.0, kept - 1.0, -kept] + [0.0] * (len(KINDS) - 4))[self.kind]
        taken = self.of_actions(np.maximum(change, 0.0), np.add)
        given = self.of_actions(np.minimum(change, 0.0), np.add)
        return np.cumsum(taken + given) - given
