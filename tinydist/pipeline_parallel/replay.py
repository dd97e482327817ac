"""Simulates a schedule in time: when each action begins and ends.

A pass begins when the previous pass of its rank has ended and its input is available. An input from another rank takes
a message time, which begins when it is sent and, in schedules with explicit messages, its receive is posted. Overlapped
passes begin when both are ready, and both results are available when the overlap ends.
Sends and receives take no compute time; nor do gradient reductions, which run one after another in the background. So
all times follow from the order and duration of actions, in one pass over them; if no rank can proceed, it is a
deadlock.

An action makes one result, and needs another (WAYS), which some stage has made of the same microbatch:

    2F0    makes the output of stage 2              needs that of stage 1
    2B0    makes the gradient of stage 2's input    needs that of stage 3; at the last stage, its own output
    2W0    makes nothing for others                 needs the gradient of stage 3, as 2B0 does

``done`` is one list for all ranks: when the result of each kind, stage and microbatch was there, or None. Each rank
walks through its program, and stops where what it needs is None.
"""

from operator import itemgetter
from typing import NamedTuple

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

# Results: those that go to another stage, of a reduction, and nothing. Where messages are explicit, both of their ends.
PASSED_ON = DOWN + UP
BEGUN, MEAN, NOTHING = "begun", "mean", "nothing"
WITHOUT_MESSAGES = (*PASSED_ON, BEGUN, MEAN, NOTHING)
RESULTS = (*WITHOUT_MESSAGES, *(f"sent {kind}" for kind in PASSED_ON), *(f"posted {kind}" for kind in PASSED_ON))
SENT = len(WITHOUT_MESSAGES)  # from the place of a result to that of its send,
POSTED = SENT + len(PASSED_ON)  # and of its receive
ALWAYS = -1  # the place of what is always there


class Way(NamedTuple):
    makes: str
    needs: str
    of: int  # whose: that of the stage before (-1), of its own (0), of the stage after (1)


WAYS = {
    FORWARD: Way(FORWARD, FORWARD, -1),
    BACKWARD: Way(BACKWARD, BACKWARD, 1),
    BACKWARD_INPUT: Way(BACKWARD, BACKWARD, 1),
    BACKWARD_WEIGHT: Way(NOTHING, BACKWARD, 0),
    WAIT: Way(NOTHING, BACKWARD, 1),
    RECOMPUTE: Way(NOTHING, FORWARD, 0),
    NORM: Way(NORM, NORM, -1),
    CHECK: Way(CHECK, CHECK, 1),
    REDUCE: Way(BEGUN, NOTHING, 0),
    REDUCED: Way(MEAN, BEGUN, 0),
    WAIT_REDUCE: Way(NOTHING, MEAN, 0),
    STEP: Way(NOTHING, NOTHING, 0),
    **{f"SEND_{kind}": Way(f"sent {kind}", NOTHING, 0) for kind in PASSED_ON},
    **{f"RECV_{kind}": Way(f"posted {kind}", NOTHING, 0) for kind in PASSED_ON},
}
# The same as arrays, by the number of the kind.
NUMBER = {kind: number for number, kind in enumerate(WAYS)}
MAKES = np.array([RESULTS.index(way.makes) for way in WAYS.values()])
NEEDS = np.array([RESULTS.index(way.needs) for way in WAYS.values()])
OF = np.array([way.of for way in WAYS.values()])
# Where the way back begins, it is what the way there has brought that is needed.
BROUGHT = {BACKWARD: FORWARD, CHECK: NORM}
AT_THE_END = np.array([RESULTS.index(BROUGHT.get(result, result)) for result in RESULTS])


class Stuck(Exception):
    """Deadlock. ``steps``: rank -> the step at which it is blocked."""

    def __init__(self, steps):
        super().__init__(steps)
        self.steps = steps


def follow(walks):
    """Advance each rank as far as possible, round-robin, until all are done."""
    schedule = walks[0].schedule
    kinds = len(RESULTS if schedule.has_messages else WITHOUT_MESSAGES)
    done = [None] * (kinds * schedule.stages * schedule.microbatches) + [0.0]  # the last one is ALWAYS
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
        """By row: places of its result, of what it needs, of the receive of that; seconds on the way; its seconds."""
        schedule, own_result, needed = self.schedule, MAKES[self.kind], NEEDS[self.kind]
        stage = self.stage + OF[self.kind]  # whose result is needed
        end = np.where(self.kind == NUMBER[CHECK], schedule.ranks, schedule.stages)  # CHECK goes from rank to rank
        turns = stage == end
        arrives = ~self._is_mine(stage) & ~turns  # from another rank
        nothing = (needed == RESULTS.index(NOTHING)) | (stage < 0)
        by_message = arrives & schedule.has_messages & ~nothing
        need = np.where(
            turns,
            self._place(AT_THE_END[needed], self.stage),
            self._place(needed + SENT * by_message, stage),
        )
        need[nothing] = ALWAYS
        posted = np.where(by_message, self._place(needed + POSTED, self.stage), ALWAYS)
        late = np.where(arrives, self.costs.message, 0.0)
        columns = self._place(own_result, self.stage), need, posted, late, self.seconds
        return [column.tolist() for column in columns]

    def _is_mine(self, stages):
        """Of stages from -1 on: those that no rank has count as this rank's."""
        ranks = [self.schedule.rank_of.get(each, self.rank) for each in range(-1, self.schedule.stages + 1)]
        return (np.array(ranks) == self.rank)[stages + 1]

    def _place(self, result, stage):
        """In ``done``."""
        return (result * self.schedule.stages + stage) * self.schedule.microbatches + self.microbatch

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
        which = self._place(0, self.stage)
        return np.isin(which, which[self.kind == NUMBER[RECOMPUTE]])
