"""A trace as Chrome-trace JSON, for Perfetto (ui.perfetto.dev) and chrome://tracing.

One process per rank, one thread per stream; flow arrows from a send to its receive, and from an issued transfer to the
wait for it.
"""

from collections import Counter
from itertools import count

GIGA, KILO = 1e9, 1e3  # the format counts microseconds, and its readers whole nanoseconds


def entries(trace):
    threads, arrows = {}, Arrows(trace.events)  # (rank, stream) -> its number within the rank
    worked = work_before_calls(trace.events)
    for event in trace.events:
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
            "name": f"{event.name} {event.what}" if event.what and event.name != "wait" else event.name,
            "cat": "compute" if event.transfer is None else "communication",
            "ts": start / KILO,
            "dur": (end - start) / KILO,
            "args": _arguments(event, worked),
            **place,
        }
        yield from arrows.of(event, start / KILO, end / KILO, place)
    for each in trace.marks:
        if (each.rank, "compute") in threads:
            yield {
                "ph": "i",
                "name": each.name,
                "cat": "mark",
                "ts": round(each.time * GIGA) / KILO,
                "s": "p",
                "pid": each.rank,
                "tid": threads[each.rank, "compute"],
            }


def work_before_calls(events):
    """{(transfer, rank): seconds of the rank's own operators since its last call on that stream}

    In the order of the rank's record, and without what it has waited for: the work that can make it late.
    """
    done, before, found = Counter(), Counter(), {}
    for event in sorted(events, key=lambda event: (event.rank, event.place)):
        if event.transfer is None:
            done[event.rank] += event.own
        elif event.name != "wait":
            here = event.rank, event.stream
            found[event.transfer, event.rank] = done[event.rank] - before[here]
            before[here] = done[event.rank]
    return found


def _arguments(event, worked):
    found, (phase, module, regions) = {}, event.scope
    if event.transfer is not None:
        found["bytes"] = _total(event.transfer.nbytes)
        if event.issued is not None and event.name != "wait":
            found["issued"] = round(event.issued * GIGA) / KILO
            found["worked"] = round(worked[event.transfer, event.rank] * GIGA) / KILO
    for name, value in (("phase", phase), ("module", module), ("what", event.what), ("regions", " / ".join(regions))):
        if value:
            found[name] = value
    return found


class Arrows:
    """Their two ends have a number in common. One that takes no time is left out."""

    def __init__(self, events):
        self.numbers, self.given = {}, count(1)
        seen = [e for e in events if e.transfer is not None and round(e.start * GIGA) < round(e.end * GIGA)]
        waits, others = ({(e.transfer, e.rank) for e in seen if (e.name == "wait") == wait} for wait in (True, False))
        self.waited = waits & others

    def of(self, event, start, end, place):
        if event.name == "message" and start < end:
            sends = event.rank == event.transfer.ranks[0]
            yield self._end("message", event.transfer, sends, start if sends else end, place)
        key = event.transfer, event.rank
        if key in self.waited:
            yield self._end("wait", key, event.name != "wait", start if event.name != "wait" else end, place)

    def _end(self, name, key, begins, at, place):
        number = self.numbers.setdefault((name, key), next(self.given))
        entry = {"ph": "s" if begins else "f", "name": name, "cat": name, "id": number, "ts": at, **place}
        return entry if begins else {**entry, "bp": "e"}


def _label(kind, rank, thread, name):
    return {"ph": "M", "name": kind, "pid": rank, "tid": thread, "args": {"name": name}}


def _total(nbytes):
    return sum(nbytes.values()) if isinstance(nbytes, dict) else nbytes
