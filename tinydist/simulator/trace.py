"""A run in virtual time: what happened on each rank, when, and how many bytes went where.

``trace.save("run.json")`` writes it for Perfetto (ui.perfetto.dev) and chrome://tracing: a process for each rank, a
thread for each of its streams, arrows along the messages.
"""

import json
from itertools import count
from typing import NamedTuple

from .memory import PURPOSES

GIGA, KILO = 1e9, 1e3  # the format counts microseconds, and its readers whole nanoseconds


class Event(NamedTuple):
    """Something that a rank did. Seconds of virtual time."""

    rank: int
    stream: str  # "compute", or that of the transfer
    name: str  # of an operator or a collective; "message", "wait"
    start: float
    end: float
    transfer: object = None  # record.Transfer


class RankMemory(NamedTuple):
    """The bytes that a rank held, by purpose (memory.py)."""

    peak: int
    at_peak: dict  # purpose -> bytes
    changes: list  # (seconds, purpose, bytes more or less)

    def __repr__(self):
        return f"<peak {self.peak:,} bytes: {self.at_peak}>"

    def over_time(self):
        """(seconds, {purpose: bytes}) after each change."""
        held = dict.fromkeys(PURPOSES, 0)
        for seconds, purpose, nbytes in self.changes:
            held[purpose] += nbytes
            yield seconds, dict(held)


class Shown(list):
    """A part of a trace, of which a notebook shows a picture."""

    def __init__(self, trace, items):
        super().__init__(items)
        self.trace = trace


class Traffic(Shown):
    """[source][destination] -> bytes."""


class Memory(Shown):
    """By rank: RankMemory."""


class Trace:
    def __init__(self, cluster, events, traffic, memory, seconds):
        self.cluster = cluster
        self.events = events  # by rank, then by start
        self.traffic = Traffic(self, traffic)
        self.memory = Memory(self, memory)
        self.seconds = seconds  # until the slowest rank is done

    def of(self, rank, stream=None):
        """The events of a rank, in the order of time."""
        return [event for event in self.events if event.rank == rank and stream in (None, event.stream)]

    def save(self, path):
        """Write it as Chrome-trace JSON."""
        with open(path, "w") as file:
            # Not json.dump: writing piece by piece takes ten times as long.
            file.write(json.dumps({"traceEvents": list(self._entries()), "displayTimeUnit": "ns"}))

    def _entries(self):
        threads = {}  # (rank, stream) -> its number within the rank
        arrows, numbers = {}, count(1)
        for event in self.events:
            key = event.rank, event.stream
            if key not in threads:
                threads[key] = sum(rank == event.rank for rank, _ in threads)
                if threads[key] == 0:
                    yield _label("process_name", event.rank, 0, f"rank {event.rank}")
                yield _label("thread_name", event.rank, threads[key], event.stream)
            place = {"pid": event.rank, "tid": threads[key]}
            start, end = round(event.start * GIGA), round(event.end * GIGA)
            yield {
                "ph": "X",
                "name": event.name,
                "cat": "compute" if event.transfer is None else "communication",
                "ts": start / KILO,
                "dur": (end - start) / KILO,
                "args": {} if event.transfer is None else {"bytes": _total(event.transfer.nbytes)},
                **place,
            }
            if event.name == "message" and start < end:
                arrow = arrows.setdefault(event.transfer, next(numbers))
                sends = event.rank == event.transfer.ranks[0]
                yield {
                    "ph": "s" if sends else "f",
                    "name": "message",
                    "cat": "message",
                    "id": arrow,
                    "ts": (start if sends else end) / KILO,
                    **place,
                    **({} if sends else {"bp": "e"}),
                }


def _label(kind, rank, thread, name):
    return {"ph": "M", "name": kind, "pid": rank, "tid": thread, "args": {"name": name}}


def _total(nbytes):
    return sum(nbytes.values()) if isinstance(nbytes, dict) else nbytes
