"""Reads recorded calls from a saved trace or PyTorch's Flight Recorder dumps, as ``RecordedCall`` objects."""

import json
import pickle
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from ..tracing.chrome import entries

UNEVEN = re.compile("all_to_all|gather$|scatter$|_v")  # ranks may give, or get, tensors of other sizes


class RecordedCall(NamedTuple):
    rank: int
    group: str
    number: int  # within its group
    operation: str
    tensors: str  # "[4] Float"
    line: str
    at: float  # seconds

    def __str__(self):
        return f"{self.operation}{' of ' * bool(self.tensors)}{self.tensors}, {self.line}"

    @property
    def kind(self):
        return self.operation, "" if UNEVEN.match(self.operation) else self.tensors


class Unreadable(ValueError):
    pass


class PlainUnpickler(pickle.Unpickler):
    """A restricted unpickler (lists, dicts, strings, numbers): an untrusted file must not run code."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"it would import {module}.{name}")


def read(path):
    """(calls, group -> its ranks where the file says so)"""
    try:
        with open(path, "rb") as file:
            content = json.load(file) if file.peek(1)[:1] == b"{" else PlainUnpickler(file).load()
        reads = next((reads for key, reads in READERS.items() if key in content), None)
        if reads:
            return reads(content, path)
    except OSError as error:
        raise Unreadable(f"diagnose: {path}: {error.strerror}") from error
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"diagnose: {path}: neither a trace nor a Flight Recorder dump: {error!r}") from error
    raise Unreadable(f"diagnose: {path}: a trace has traceEvents, a Flight Recorder dump has entries; this has neither")


def of_record(content, path):
    rank = re.search(r"\d+$", Path(path).stem)
    if not rank:
        raise Unreadable(f"diagnose: {path}: the name of a Flight Recorder dump must end with its rank, as rank_0")
    calls = defaultdict(list)
    for entry in content["entries"]:
        if not entry["is_p2p"]:
            call = of_entry(entry, int(rank[0]))
            own = calls[call.group]
            if own and call.number <= own[-1].number:  # a new group with the name of an older one
                own.clear()
            own.append(call)
    groups = [each for each in content.get("pg_config", {}).values() if each["ranks"] != "[]"]  # gloo's are empty
    ranks_of = {named(each["name"], each["desc"]): set(json.loads(each["ranks"])) for each in groups}
    return [call for own in calls.values() for call in own], ranks_of


def of_entry(entry, rank):
    tensors = [f"{size} {dtype}" for size, dtype in zip(entry["input_sizes"], entry["input_dtypes"])]
    own = [each for each in entry["frames"] if "/torch/" not in each["filename"]] or entry["frames"]
    line = f"{own[0]['filename']}:{own[0]['line']} in {own[0]['name']}" if own else "its line was not recorded"
    operation = entry["profiling_name"].partition(":")[2]
    number, at = entry["collective_seq_id"], entry["time_created_ns"] / 1e9
    return RecordedCall(rank, named(*entry["process_group"]), number, operation, ", ".join(tensors), line, at)


def named(name, description):
    return description if description not in ("", "undefined") else f"group {name}"


def of_trace(content, path):
    calls = calls_in(content["traceEvents"])
    if not calls:
        raise Unreadable(f"diagnose: {path}: no communication in a trace; is it of torch.profiler, or of one rank?")
    return calls, {}


def calls_of_trace(trace):
    """The calls of a ``Trace`` that is not saved."""
    return calls_in(list(entries(trace)))


def calls_in(events):
    numbers = Counter()
    streams = {(each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"}
    calls = []
    for each in events:
        if each.get("cat") == "communication" and each["name"] != "wait":
            about = each["args"]
            place = each["pid"], streams[each["pid"], each["tid"]]
            numbers[place] += 1
            where = ", ".join(about[key] for key in ("phase", "module", "regions") if key in about)
            how = each["name"], f"{about['bytes']:,} bytes", f"in {where or 'the program'}", about["issued"] / 1e6
            calls.append(RecordedCall(*place, numbers[place], *how))
    return calls


READERS = {"entries": of_record, "traceEvents": of_trace}
