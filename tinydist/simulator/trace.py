"""A run in virtual time: what happened on each rank, when, and how many bytes went where.

``trace.save("run.json")`` writes it for Perfetto (ui.perfetto.dev) and chrome://tracing (chrome.py).
"""

import json
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from . import chrome
from .held import Held, is_inside
from .moments import Mark, Region, moment_of
from .names import Where
from .shown import Shown
from .uncollected import uncollected
from .window import Window

WHOSE = attrgetter("label", "shard")


class Event(NamedTuple):
    """Something that a rank did. Seconds of virtual time."""

    rank: int
    stream: str  # "compute", or that of the transfer
    name: str  # of an operator or a collective; "message", "wait"
    start: float
    end: float
    transfer: object = None  # record.Transfer
    where: Where = Where()  # the rank was when it called
    what: str = ""  # of a transfer: what it was for
    issued: float | None = None  # when the rank called
    place: int = -1  # of the call in the rank's record

    during = property(lambda self: self.where.during)  # "forward", "backward" ... (names.py)
    part = property(lambda self: self.where.part)  # of the model: "blocks.3.mlp"
    regions = property(lambda self: self.where.regions)  # the outermost first

    def shifted(self, seconds):
        issued = None if self.issued is None else self.issued + seconds
        return self._replace(start=self.start + seconds, end=self.end + seconds, issued=issued)


class Block(NamedTuple):
    """Successive operators of a rank in one pass of one part of the model."""

    rank: int
    during: str
    part: str
    start: float
    end: float


class Traffic(Shown):
    """[source][destination] -> bytes."""


class Memory(Shown):
    """By rank: RankMemory."""


class Trace:
    def __init__(self, cluster, events, sent, memory, seconds, wholes):
        self.cluster = cluster
        self.events = events  # by rank, then by start, then as the rank did them
        self.sent = sent  # transfer -> for each of its phases, (source, destination) -> bytes
        self.memory = Memory(self, memory)
        self.seconds = seconds  # until the slowest rank is done
        self.wholes = wholes  # name of a parameter -> bytes of all of it

    @cached_property
    def traffic(self):
        traffic = [[0] * len(self.memory) for _ in self.memory]
        for phases in self.sent.values():
            for edges in phases:
                for (source, destination), nbytes in edges.items():
                    traffic[source][destination] += nbytes
        return Traffic(self, traffic)

    def of(self, rank, stream=None):
        """The events of a rank, in the order of time."""
        return [event for event in self.events if event.rank == rank and stream in (None, event.stream)]

    # Names.

    @property
    def marks(self):
        return [each for held in self.memory for each in held.named if isinstance(each, Mark)]

    @property
    def regions(self):
        return [each for held in self.memory for each in held.named if isinstance(each, Region)]

    def time(self, moment, rank=0, at_end=False):
        """Seconds of a mark, or of the begin of a region, or of its end."""
        return moment_of(moment, self.memory[rank].named, rank, at_end).time

    def blocks(self, rank, depth=None, regions=False):
        """What a rank computed, block by block: successive operators of one pass and part make a Block.

        depth:    how much of a part's name counts: of "blocks.3.mlp.up", 2 leaves "blocks.3" (None: all).
        regions:  the innermost region in the place of the part.
        """

        def key(event):
            if regions:
                return event.during, event.regions[-1] if event.regions else ""
            return event.during, ".".join(event.part.split(".")[:depth])

        operators = [event for event in self.of(rank, "compute") if event.name != "wait"]
        for (during, part), together in groupby(operators, key):
            first, *others = together
            yield Block(rank, during, part, first.start, others[-1].end if others else first.end)

    # A window.

    def between(self, begin, end=None):
        """What each rank did from one moment of its own to another, in the order of its record: a Trace.

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

    def owners(self, moment, purpose="parameters", labels=None):
        """By rank: {label: Held}, the bytes that it has of each part of the model at a moment of its own.

        ``moment``: or a list of them, one for each rank. ``labels``: parts of the model, or what the program has
        labelled; None: all, by the first two components of their names.
        """
        moments = moment if isinstance(moment, list) else [moment] * len(self.memory)
        held = [rank.sums(WHOSE, at, purpose) for rank, at in zip(self.memory, moments, strict=True)]
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


def shards_of(label, held):
    """{rank whose part it is: bytes}, of a part of the model."""
    found = {}
    for (name, shard), nbytes in held.items():
        if is_inside(name, label):
            found[shard] = found.get(shard, 0) + nbytes
    return found
