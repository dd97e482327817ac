"""Simulates a schedule in time: when each action begins and ends.

A pass begins when the previous pass of its rank has ended and its input is available. An input from another rank takes
a message time, which begins when it is sent and, in schedules with explicit messages, its receive is posted. Overlapped
passes begin when both are ready, and both results are available when the overlap ends.
Sends and receives take no compute time; nor do gradient reductions, which run one after another in the background. So
all times follow from the order and duration of actions, in one pass over them; if no rank can proceed, it is a
deadlock.
"""

from operator import itemgetter

import numpy as np

from .schedule import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    CHECK,
    DOWN,
    FORWARD,
    NORM,
    RECOMPUTE,
    REDUCE,
    STEP,
    UP,
    WAIT_REDUCE,
    Action,
    Overlap,
)

BEFORE, INSIDE = RECOMPUTED = ("before", "inside")  # backward
WAIT = "wait"  # of an overlap, for what its backward needs
REDUCED = "reduced"  # what REDUCE has begun is done
PASSED_ON = DOWN + UP
BEGUN, MEAN, NOTHING = "begun", "mean", "nothing"
RESULTS = (*PASSED_ON, BEGUN, MEAN, NOTHING)
FOUND = (*RESULTS, *[f"{end} {kind}" for end in ("sent", "posted") for kind in PASSED_ON])
SENT, POSTED = len(RESULTS), len(RESULTS) + len(PASSED_ON)  # places from a result to both ends of its message
# Kind -> what it makes (B and I the same), what it needs, and of which neighbor: the stage before, itself, or after.
WAYS = {
    FORWARD: (FORWARD, FORWARD, -1),
    BACKWARD: (BACKWARD, BACKWARD, 1),
    BACKWARD_INPUT: (BACKWARD, BACKWARD, 1),
    BACKWARD_WEIGHT: (NOTHING, BACKWARD, 0),
    WAIT: (NOTHING, BACKWARD, 1),
    RECOMPUTE: (NOTHING, FORWARD, 0),
    NORM: (NORM, NORM, -1),
    CHECK: (CHECK, CHECK, 1),
    REDUCE: (BEGUN, NOTHING, 0),
    REDUCED: (MEAN, BEGUN, 0),
    WAIT_REDUCE: (NOTHING, MEAN, 0),
    STEP: (NOTHING, NOTHING, 0),
    **{f"SEND_{kind}": (f"sent {kind}", NOTHING, 0) for kind in PASSED_ON},
    **{f"RECV_{kind}": (f"posted {kind}", NOTHING, 0) for kind in PASSED_ON},
}
NUMBER = {kind: number for number, kind in enumerate(WAYS)}
MADE, NEEDED = (np.array([FOUND.index(way[which]) for way in WAYS.values()]) for which in (0, 1))
NEIGHBOR = np.array([neighbor for _, _, neighbor in WAYS.values()])
ALWAYS = -1  # the place of what is always there
AT_THE_END = {BACKWARD: FORWARD, CHECK: NORM}  # what the way back begins with
TURN = np.array([FOUND.index(AT_THE_END.get(found, found)) for found in FOUND])


class Stuck(Exception):
    """Deadlock. ``steps``: rank -> the step at which it is blocked."""

    def __init__(self, steps):
        super().__init__(steps)
        self.steps = steps


def follow(walks):
    """Advance each rank as far as possible, round-robin, until all are done."""
    schedule = walks[0].schedule
    kinds = len(FOUND if schedule.has_messages else RESULTS)
    done = [None] * (kinds * schedule.stages * schedule.microbatches) + [0.0]  # when a result was there; ALWAYS
    going = {walk: walk.run(done) for walk in walks}
    while going:
        before = sum([len(walk.ends) for walk in walks])
        going = {walk: run for walk, run in going.items() if next(run, "done") != "done"}
        if going and sum([len(walk.ends) for walk in walks]) == before:
            raise Stuck({walk.rank: walk.step for walk in going if walk.aside is None})


def column(rows, field):
    return np.fromiter(map(itemgetter(field), rows), dtype=np.int64, count=len(rows))


class Walk:
    """A rank's way through its program, as columns of numbers: a schedule may have a million actions.

    An action is one row, an overlap three: wait for what backward needs, do both, and backward is done, too. The
    reductions that a rank begins have a way of their own, ``aside``.
    """

    def __init__(self, schedule, rank, costs, aside=None):
        self.schedule, self.rank, self.costs, self.aside, self.ends = schedule, rank, costs, aside, []
        self.program = schedule.programs[rank] if aside is None else aside
        self.overlaps = Overlap in set(map(type, self.program))
        rows = self._rows()
        self.stage, self.microbatch = column(rows, 0), column(rows, 2)
        self.kind = np.array([NUMBER[kind] for _, kind, _ in rows], dtype=np.int64)
        seconds = costs.by_stage(schedule.stages)
        seconds[NUMBER[STEP]] = seconds[NUMBER[STEP], schedule.stages_of(rank)].sum()
        self.seconds = seconds[self.kind, self.stage]
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
        for own, need, posted, late, seconds in zip(*self._columns()):
            while (ready := done[need]) is None:
                yield "waits"
            if late:
                ready = max(ready, done[posted]) + late
            now = (ready if ready > now else now) + seconds
            done[own] = now
            ends.append(now)

    def _columns(self):
        """By row: the number of its result, of what it needs, of its receive, how long that is on its way, seconds."""
        stages, ranks, stage = self.schedule.stages, self.schedule.ranks, self.stage + NEIGHBOR[self.kind]
        mine = [self.schedule.rank_of.get(each, self.rank) == self.rank for each in range(-1, stages + 1)]
        turns = stage == np.where(self.kind == NUMBER[CHECK], ranks, stages)  # there the way back begins
        away = ~np.array(mine)[stage + 1] & ~turns
        needed, messages = NEEDED[self.kind], away & self.schedule.has_messages
        need = np.where(turns, self._number(TURN[needed], self.stage), self._number(needed + SENT * messages, stage))
        nothing = (needed == FOUND.index(NOTHING)) | (stage < 0)
        need[nothing] = ALWAYS
        posted = np.where(messages & ~nothing, self._number(needed + POSTED, self.stage), ALWAYS)
        own, late = self._number(MADE[self.kind], self.stage), np.where(away, self.costs.message, 0.0)
        return own.tolist(), need.tolist(), posted.tolist(), late.tolist(), self.seconds.tolist()

    def _number(self, place, stage):
        return (place * self.schedule.stages + stage) * self.schedule.microbatches + self.microbatch

    @property
    def reductions(self):
        (places,) = np.nonzero(self.kind == NUMBER[REDUCE])
        return [Action(int(self.stage[place]), REDUCED, int(self.microbatch[place])) for place in places]

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

    def live(self):
        """What a pass takes is held from its beginning, what it gives back until its end."""
        again, ways = self.again, zip(self.costs.held(BEFORE), self.costs.held(self.costs.recompute))
        changes = [np.where(again, before[self.kind], else_[self.kind]) for before, else_ in ways]
        taken, given = (self.of_actions(change, np.add) for change in changes)
        return np.cumsum(taken - given) + given

    @property
    def again(self):
        """Of each row: is forward of its microbatch run once more, in R?"""
        which = self._number(0, self.stage)
        return np.isin(which, which[self.kind == NUMBER[RECOMPUTE]])
