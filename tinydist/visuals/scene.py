"""The part of a run to plot: the blocks of a selection of ranks in a time range.

A moment is in seconds, or has a name: that of a mark or a region of the program, or of a block in the picture itself.

    since="step 2"    at this mark, or where this region begins    since=("step", 1)     the second of that name
    since="B4"        where the first block B4 begins              since=("B4", -1)      the last
    until="Adam"      where the first Adam after ``since`` ends    until=("Adam", -1)    the last of all
"""

from copy import copy
from functools import cache
from itertools import groupby, pairwise
from typing import NamedTuple

from ..launching.launch import Run
from ..rules import amount, integer, stated, whole
from .block_names import BlockNames
from .formatting import check_rank, seconds_text

MOST_RANKS = 16  # more rows cannot be told apart
NARROW = 1 / 250  # of the width: narrower blocks get no name, and may be dropped between two halves of a block


def is_name(value):
    name, number = value if isinstance(value, tuple) and len(value) == 2 else (value, 0)
    return isinstance(name, str) and name != "" and integer(number)


a_moment = stated("seconds, a name, or (name, which of them)", lambda value: amount(value) or is_name(value))


class Scene:
    """``ranks``: None for all, and at most 16. ``since``: None for the first forward pass, where there is one."""

    def __init__(self, operation, trace, ranks=None, since=None, until=None):
        self.operation, self.trace, self.names = operation, trace, BlockNames(trace)
        self.everyone = range(len(trace.memory))
        self.ranks = list(self.everyone[:MOST_RANKS] if ranks is None else ranks)
        if not self.ranks or not all(whole(rank) and rank in self.everyone for rank in self.ranks):
            raise ValueError(f"{operation}: ranks must be some of 0 to {self.everyone[-1]}, got {self.ranks}")
        self.row = cache(lambda rank: Row(trace, self.names, rank, 0.0, trace.seconds))  # from start to end
        self.since = self.names.first_forward or 0.0 if since is None else min(self.times(since))
        self.until = trace.seconds if until is None else max(self.times(until, at_end=True, after=self.since))
        if not self.since < self.until:
            times = f"{seconds_text(self.since)} to {seconds_text(self.until)}"
            raise ValueError(f"{operation}: nothing to draw from {times}")
        self.rows = [Row(trace, self.names, rank, self.since, self.until) for rank in self.ranks]
        self.since_words = since_words(since, self.since)

    @property
    def seconds(self):
        return self.until - self.since

    def times(self, moment, at_end=False, after=None):
        """Of this moment on each rank that has it. ``at_end``: that of a block is its end; the first ``after``."""
        if not is_name(moment):
            return [moment]
        name, which = moment if isinstance(moment, tuple) else (moment, 0)
        if isinstance(moment, tuple) or after is None:
            after = -1.0
        on_each = [[time for time in self._times_on(rank, name, at_end) if time > after] for rank in self.ranks]
        found = [time for times in on_each for time in times[which:][:1]]
        if not found:
            raise ValueError(f"{self.operation}: no mark or region named {name!r}; available: {self._all_names()}")
        return found

    def _times_on(self, rank, name, at_end):
        marks = [mark.time for mark in self.trace.marks if (mark.rank, mark.name) == (rank, name)]
        regions = [each for each in self.trace.regions if (each.rank, each.name) == (rank, name)]
        spans = regions or self.row(rank).named(name)
        return marks or [span.end if at_end else span.start for span in spans]

    def _all_names(self):
        rows = [self.row(rank) for rank in self.ranks]
        names = [each.name for each in (*self.trace.marks, *self.trace.regions) if each.rank in self.ranks]
        names += [block.name for row in rows for block in row.compute + row.communication if block.name]
        return ", ".join(map(repr, list(dict.fromkeys(names))[:12])) or "no names in this run"


a_run = stated(
    "a Run, or (run, since)",
    lambda v: isinstance(v, Run) or (isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], Run) and a_moment(v[1])),
)


def scenes_of(operation, runs, rank, until=None):
    """Name -> what ``rank`` did in each of several runs; {name: rank}: another one in each."""
    if isinstance(rank, dict) and rank.keys() != runs.keys():
        raise ValueError(
            f"{operation}: rank must have each run, {', '.join(runs)}, got {', '.join(map(str, rank)) or 'none'}"
        )
    scenes = {}
    for name, given in runs.items():
        run, since = given if isinstance(given, tuple) else (given, None)
        mine = rank[name] if isinstance(rank, dict) else rank
        check_rank(operation, mine, run)
        scenes[name] = Scene(f"{operation}, {name!r}", run.trace, [mine], since, until)
    return scenes


def since_words(since, seconds):
    """How the axis says where its 0 is."""
    if since is None:
        return " since the first forward pass" if seconds else ""
    if not is_name(since):
        return f" since {seconds_text(seconds)}" if seconds else ""
    return f" since {since if isinstance(since, str) else since[0]}"


def name_of(moment):
    if isinstance(moment, tuple):
        return f"{moment[0]}, {moment[1] + 1}" if moment[1] >= 0 else f"last {moment[0]}"
    return moment if isinstance(moment, str) else f"at {seconds_text(moment)}"


class TimelineBlock(NamedTuple):
    start: float
    end: float
    kind: str  # "forward", "recompute", "backward", "weights", "optimizer", "compute", "waiting", "communication"
    name: str = ""
    ranks: tuple = ()  # among which something is sent

    @property
    def length(self):
        return self.end - self.start

    def since(self, moment):
        return self._replace(start=self.start - moment, end=self.end - moment)

    def along(self, axes):
        """The same, of the kind of the axis, name -> ranks, among whose ranks all of it is sent."""
        kind = next((name for name, ranks in axes.items() if {*self.ranks} <= {*ranks}), self.kind)
        return self._replace(kind=kind)


class Row:
    """What ``rank`` did between two moments."""

    def __init__(self, trace, names, rank, since, until):
        self.rank, self.compute, self.waiting, self.communication = rank, [], [], []
        self.narrow = NARROW * (until - since)
        for event in trace.of(rank):
            start, end = max(event.start, since), min(event.end, until)
            if start >= end:
                continue
            if event.stream != "compute" and event.transfer is None:
                continue  # a copy beside compute, on a stream of the program's own
            if event.stream != "compute":
                named = "communication", names.of_transfer(event), tuple(event.transfer.ranks)
                self.communication.append(TimelineBlock(start, end, *named))
            elif event.name == "wait":
                add(self.waiting, TimelineBlock(start, end, "waiting"))
            else:
                add(self.compute, TimelineBlock(start, end, *names.of_operator(event)), self.narrow)

    @property
    def lanes(self):
        """The transfers in as few lists as possible, each without overlaps.

        In one list if all are too narrow to be told apart.
        """
        if all(block.length < self.narrow for block in self.communication):
            return [sorted(self.communication)] if self.communication else []
        found = []
        for block in sorted(self.communication):
            free = next((lane for lane in found if lane[-1].end <= block.start), None)
            if free is None:
                found.append([block])
            else:
                free.append(block)
        return found

    def since(self, moment):
        """The same, counted from ``moment``."""
        shifted = copy(self)
        for kind in ("compute", "waiting", "communication"):
            setattr(shifted, kind, [block.since(moment) for block in getattr(self, kind)])
        return shifted

    def named(self, name):
        """All blocks of this name, or kind, in the order of time. Pieces of one, with waits between, are a whole."""
        found = [block for block in self.communication + self.waiting if name in (block.name, block.kind)]
        known = [block for block in self.compute if block.name or block.kind == name]
        for asked, together in groupby(known, lambda block: name in (block.name, block.kind)):
            if asked:
                first, last = ends(list(together))
                found.append(first._replace(end=last.end))
        return sorted(found)


def ends(blocks):
    return blocks[0], blocks[-1]


def add(blocks, block, narrow=0.0):
    """The last one goes on, or the one before it after a ``narrow`` break without a name, or ``block`` is a new one."""
    *_, before, last = None, None, *blocks
    if last and touch(last, block) and alike(last, block):
        blocks[-1] = last._replace(end=block.end)
    elif before and touch(before, last, block) and alike(before, block) and last.length < narrow and not last.name:
        blocks[-2:] = [before._replace(end=block.end)]
    else:
        blocks.append(block)


def touch(*blocks):
    return all(other.start <= block.end for block, other in pairwise(blocks))


def alike(block, other):
    return (block.kind, block.name) == (other.kind, other.name)


def covered(blocks):
    """Seconds in which there is any of them."""
    total, until = 0.0, float("-inf")
    for start, end, *_ in sorted(blocks):
        total += max(0.0, end - max(start, until))
        until = max(end, until)
    return total
