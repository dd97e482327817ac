"""The trace of a run in virtual time: events, traffic and memory of each rank.

``trace.save("run.json")`` writes it for Perfetto (ui.perfetto.dev) and chrome://tracing (chrome.py), and
``trace.save_by_rank("folder")`` as torch.profiler would on GPUs, for tools that read those files (kineto.py).
"""

import gc
import json
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from . import TraceView, chrome, kineto
from .memory_timeline import Change, Held, RankMemory, is_inside
from .scopes import Scope
from .time_points import Mark, Region, time_point_of

WHOSE = attrgetter("label", "shard")


class Event(NamedTuple):
    """Something that a rank did. Seconds of virtual time."""

    rank: int
    stream: str  # "compute", or that of the transfer
    name: str  # of an operator or a collective; "message", "wait"
    start: float
    end: float
    transfer: object = None  # record.Transfer
    scope: Scope = Scope()  # the rank was when it called
    what: str = ""  # of a transfer: what it was for
    issued: float | None = None  # when the rank called
    place: int = -1  # of the call in the rank's record
    own: float = 0.0  # of an operator: what it takes on a rank that nothing holds up

    phase = property(lambda self: self.scope.phase)  # "forward", "backward" ... (scopes.py)
    module = property(lambda self: self.scope.module)  # of the model: "blocks.3.mlp"
    regions = property(lambda self: self.scope.regions)  # the outermost first

    def shifted(self, seconds):
        issued = None if self.issued is None else self.issued + seconds
        return self._replace(start=self.start + seconds, end=self.end + seconds, issued=issued)


class OperatorBlock(NamedTuple):
    """Consecutive operators of a rank in one phase of one module."""

    rank: int
    phase: str
    module: str
    start: float
    end: float


class TrafficView(TraceView):
    """[source][destination] -> bytes."""


class MemoryView(TraceView):
    """By rank: RankMemory."""


class Trace:
    def __init__(self, cluster, events, sent, memory, seconds, wholes):
        self.cluster = cluster
        self.events = events  # by rank, then by start, then as the rank did them
        self.sent = sent  # transfer -> for each of its phases, (source, destination) -> bytes
        self.memory = MemoryView(self, memory)
        self.seconds = seconds  # until the slowest rank is done
        self.wholes = wholes  # name of a parameter -> bytes of all of it

    @cached_property
    def traffic(self):
        traffic = [[0] * len(self.memory) for _ in self.memory]
        for phases in self.sent.values():
            for edges in phases:
                for (source, destination), nbytes in edges.items():
                    traffic[source][destination] += nbytes
        return TrafficView(self, traffic)

    def of(self, rank, stream=None):
        """The events of a rank, in the order of time."""
        return [event for event in self.events if event.rank == rank and stream in (None, event.stream)]

    def busy(self, rank=0):
        """Seconds that the rank computed, and of its transfers by collective: {"compute": ..., "all_to_all": ...}."""
        seconds = {}
        for event in self.of(rank):
            if event.name != "wait":
                name = "compute" if event.stream == "compute" else event.name
                seconds[name] = seconds.get(name, 0.0) + event.end - event.start
        return seconds

    def hidden(self, collective, rank=0):
        """The part of the rank's transfers of this name, 0 to 1, during which it computes."""
        computing = [event for event in self.of(rank, "compute") if event.name != "wait"]
        moved = [event for event in self.of(rank) if event.name == collective and event.stream != "compute"]
        if not moved:
            raise ValueError(f"hidden: rank {rank} has no {collective}")
        beside = 0.0
        for event in moved:
            both = (min(event.end, other.end) - max(event.start, other.start) for other in computing)
            beside += sum(seconds for seconds in both if seconds > 0)
        return beside / sum(event.end - event.start for event in moved)

    # Scopes.

    @property
    def marks(self):
        return [each for held in self.memory for each in held.named if isinstance(each, Mark)]

    @property
    def regions(self):
        return [each for held in self.memory for each in held.named if isinstance(each, Region)]

    def time(self, time_point, rank=0, at_end=False):
        """Seconds of a mark, or of the begin of a region, or of its end."""
        return time_point_of(time_point, self.memory[rank].named, rank, at_end).time

    def blocks(self, rank, depth=None, regions=False):
        """A rank's compute as OperatorBlocks: consecutive operators of one phase and module.

        depth:    how much of a module's name counts: of "blocks.3.mlp.up", 2 leaves "blocks.3" (None: all).
        regions:  the innermost region in the place of the module.
        """

        def key(event):
            if regions:
                return event.phase, event.regions[-1] if event.regions else ""
            return event.phase, ".".join(event.module.split(".")[:depth])

        operators = [event for event in self.of(rank, "compute") if event.name != "wait"]
        for (phase, module), together in groupby(operators, key):
            first, *others = together
            yield OperatorBlock(rank, phase, module, first.start, others[-1].end if others else first.end)

    # A window.

    def between(self, begin, end=None):
        """A Trace of a window: each rank's events between two of its own time points.

        ``end``: None for that of the region ``begin``. Time starts at the earliest begin of all ranks, and ``seconds``
        is the latest end. A transfer belongs to the ranks that issued it in between, and its bytes to their senders.
        """
        window = Window(self.memory, begin, begin if end is None else end)
        events = [event for event in self.events if window.has(event)]
        inside = {(event.transfer, event.rank) for event in events if event.name != "wait"}
        sent = {
            transfer: [
                {ends: nbytes for ends, nbytes in edges.items() if (transfer, ends[0]) in inside} for edges in phases
            ]
            for transfer, phases in self.sent.items()
        }
        events = [event.shifted(-window.zero) for event in events]
        memory = [window.memory_of(held) for held in self.memory]
        return Trace(self.cluster, events, sent, memory, window.seconds, self.wholes)

    # Who owns what.

    def owners(self, time_point, purpose="parameters", labels=None):
        """By rank: {label: Held}, the bytes that it has of each part of the model at a time point of its own.

        ``time_point``: or a list of them, one for each rank. ``labels``: parts of the model, or what the program has
        labelled; None: all, by the first two components of their names.
        """
        time_points = time_point if isinstance(time_point, list) else [time_point] * len(self.memory)
        held = [rank.sums(WHOSE, at, purpose) for rank, at in zip(self.memory, time_points, strict=True)]
        if labels is None:
            labels = list(dict.fromkeys(self._module(name) for row in held for name, _ in row if name))
        grid = [{label: shards_of(label, row) for label in labels} for row in held]
        wholes = {label: self._whole(label, purpose, [row[label] for row in grid]) for label in labels}
        return [
            {label: Held(sum(shards.values()), wholes[label], shards) for label, shards in row.items()} for row in grid
        ]

    def _module(self, label):
        names = label.split(".")
        return ".".join((names[:-1] or names if label in self.wholes else names)[:2])

    def _whole(self, label, purpose, rows):
        known = sum(nbytes for name, nbytes in self.wholes.items() if is_inside(name, label))
        if known and purpose in ("parameters", "gradients"):
            return known
        one = sum(rows[rank].get(rank, 0) for rank in range(len(rows)))  # the own shards of all
        return max(one, *(shards.get(None, 0) for shards in rows))

    def save(self, path):
        """Write it as Chrome-trace JSON."""
        with open(path, "w") as file:
            with uncollected():
                # Not json.dump: writing piece by piece takes ten times as long.
                file.write(json.dumps({"traceEvents": list(chrome.entries(self)), "displayTimeUnit": "ns"}))

    def save_by_rank(self, folder):
        """Write a file for each rank, as torch.profiler does on GPUs. Returns their paths."""
        return kineto.save_by_rank(self, folder)


def shards_of(label, held):
    """{rank whose part it is: bytes}, of a part of the model."""
    found = {}
    for (name, shard), nbytes in held.items():
        if is_inside(name, label):
            found[shard] = found.get(shard, 0) + nbytes
    return found


class Window:
    """A window of a run: each rank's events between two of its own time points.

    By name, each rank has its own, and takes part with what it did between them, in the order of its record. By
    seconds, all have the same, and take part with what began from the first on and before the second. Time is counted
    from the earliest begin, and ends with the latest end. What a transfer carries belongs to the rank that sends it, if
    it has issued the transfer in between. A rank that is not run takes part in the transfers of the others.
    """

    def __init__(self, memory, begin, end):
        ran = [held for held in memory if not held.is_idle]
        self.begins = {held.rank: time_point_of(begin, held.named, held.rank) for held in ran}
        self.ends = {held.rank: time_point_of(end, held.named, held.rank, at_end=True) for held in ran}
        self.zero = max(0.0, min((each.time for each in self.begins.values()), default=0.0))
        self.seconds = max((each.time for each in self.ends.values()), default=0.0) - self.zero
        self.transfers = set()  # that a rank has issued in it

    def has(self, event):
        """To be asked of the events of all ranks in their order."""
        begin, end = self.begins.get(event.rank), self.ends.get(event.rank)
        if begin is None or event.issued is None:
            return event.transfer in self.transfers
        after = begin.time <= event.issued if begin.place is None else begin.place < event.place
        before = event.issued < end.time if end.place is None else event.place < end.place
        if after and before and event.transfer and event.name != "wait":
            self.transfers.add(event.transfer)
        return after and before

    def memory_of(self, held):
        """What was held at the begin, and the changes since."""
        if held.is_idle:
            return held
        begin, end = self.begins[held.rank], self.ends[held.rank]
        changes, start = [], {}
        for change in held.changes:
            if not begin.before(change.seconds, change.place):
                key = change.purpose, change.label, change.shard
                start[key] = start.get(key, 0) + change.nbytes
            elif not end.before(change.seconds, change.place):
                changes.append(change._replace(seconds=change.seconds - self.zero))
        at = max(0.0, begin.time - self.zero)
        there = [
            Change(at, purpose, nbytes, label, shard, -1) for (purpose, label, shard), nbytes in start.items() if nbytes
        ]
        named = [each.shifted(-self.zero) for each in held.named if self.has_time_point(each, begin, end)]
        return RankMemory.of_changes(there + changes, held.rank, tuple(named))

    def has_time_point(self, each, begin, end):
        return each.place == begin.place or (
            begin.before(each.start, each.place) and not end.before(each.start, each.place)
        )


@contextmanager
def uncollected():
    """Context: disables the garbage collector while many long-lived objects are created."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
