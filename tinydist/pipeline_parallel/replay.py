"""A schedule followed through time, action by action: when each ends.

A pass begins when its rank is done with the one before, and the result that it needs is there: that of another rank
after the time of a message, which begins once it is sent and, if messages are written down, its receive posted. Of an
overlap, both passes begin when both can, and both results are there when it ends.
Sends and receives take no time of a rank; nor does the reduction of gradients, one after another while the rank goes
on. So every time follows from the order of actions and what each takes, in one walk over them; if no rank can go on,
they wait for one another in a circle.
"""

from operator import itemgetter

import numpy as np

from .actions import (
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
RESULTS = (*PASSED_ON, "begun", "mean", "nothing")
FOUND = (*RESULTS, *[f"{end} {kind}" for end in ("sent", "posted") for kind in PASSED_ON])
SENT, POSTED = FOUND.index("sent F"), FOUND.index("posted F")  # places from a result to both ends of its message
# Kind -> what it makes (B and I the same), what it needs, and of which neighbor: the stage before, itself, or after.
WAYS = {
    FORWARD: ("F", "F", -1),
    BACKWARD: ("B", "B", 1),
    BACKWARD_INPUT: ("B", "B", 1),
    BACKWARD_WEIGHT: ("nothing", "B", 0),
    WAIT: ("nothing", "B", 1),
    RECOMPUTE: ("nothing", "F", 0),
    NORM: ("NORM", "NORM", -1),
    CHECK: ("CHECK", "CHECK", 1),
    REDUCE: ("begun", "nothing", 0),
    REDUCED: ("mean", "begun", 0),
    WAIT_REDUCE: ("nothing", "mean", 0),
    STEP: ("nothing", "nothing", 0),
    **{f"SEND_{kind}": (f"sent {kind}", "nothing", 0) for kind in PASSED_ON},
    **{f"RECV_{kind}": (f"posted {kind}", "nothing", 0) for kind in PASSED_ON},
}
NUMBER = {kind: number for number, kind in enumerate(WAYS)}
MADE, NEEDED = (np.array([FOUND.index(way[which]) for way in WAYS.values()]) for which in (0, 1))
NEIGHBOR = np.array([neighbor for _, _, neighbor in WAYS.values()])
NONE = FOUND.index("nothing")
NOTHING = -1  # is always there
TURN = np.array([FOUND.index({"B": "F", "CHECK": "NORM"}.get(found, found)) for found in FOUND])  # at the last stage


class Stuck(Exception):
    """No rank can go on. ``steps``: rank -> the step that it cannot begin."""

    def __init__(self, steps):
        super().__init__(steps)
        self.steps = steps


def follow(walks):
    """Let each rank go as far as it can, in turn, until all are done."""
    schedule = walks[0].schedule
    kinds = len(FOUND if schedule.has_messages else RESULTS)
    done = [None] * (kinds * schedule.stages * schedule.microbatches) + [0.0]  # when a result was there; NOTHING
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
        nothing = (needed == NONE) | (stage < 0)
        need[nothing] = NOTHING
        posted = np.where(messages & ~nothing, self._number(needed + POSTED, self.stage), NOTHING)
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
