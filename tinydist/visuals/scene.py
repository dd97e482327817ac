"""What is drawn of a run: some ranks, from one moment to another.

A moment is in seconds, or has a name: that of a mark or a region of the program, or of a block in the picture itself.

    since="step 2"    at this mark, or where this region begins    since=("step", 1)     the second of that name
    since="B4"        where the first block B4 begins              since=("B4", -1)      the last
    until="Adam"      where the first Adam after ``since`` ends    until=("Adam", -1)    the last of all
"""

from functools import cache

from ..launching.launch import Run
from ..rules import amount, integer, stated, whole
from .blocks import Row
from .names import Names
from .words import check_rank, seconds_text

MOST_RANKS = 16  # more rows cannot be told apart


def is_name(value):
    name, number = value if isinstance(value, tuple) and len(value) == 2 else (value, 0)
    return isinstance(name, str) and name != "" and integer(number)


a_moment = stated("seconds, a name, or (name, which of them)", lambda value: amount(value) or is_name(value))


class Scene:
    """``ranks``: None for all, and at most 16. ``since``: None for the first forward pass, where there is one."""

    def __init__(self, operation, trace, ranks=None, since=None, until=None):
        self.operation, self.trace, self.names = operation, trace, Names(trace)
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
    """Name -> what ``rank`` did in each of several runs."""
    scenes = {}
    for name, given in runs.items():
        run, since = given if isinstance(given, tuple) else (given, None)
        check_rank(operation, rank, run)
        scenes[name] = Scene(f"{operation}, {name!r}", run.trace, [rank], since, until)
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
