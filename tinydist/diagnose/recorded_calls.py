"""Reads recorded calls from a saved trace or PyTorch's Flight Recorder dumps, as ``RecordedCall`` objects."""

import io
import json
import pickle
import pickletools
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from ..tracing.chrome import entries

MOST_RANKS = 2**20
MESSAGE = re.compile(r"\w+:(?:send (\d+)->|recv (\d+)<-)(\d+)")  # ranks of the group, its own first
UNEVEN = re.compile("all_to_all|gather$|scatter$|_v")  # ranks may give, or get, tensors of other sizes


class RecordedCall(NamedTuple):
    rank: int
    group: str
    number: int  # within its group
    operation: str
    tensors: str  # "[4] Float"
    line: str
    at: float  # seconds
    name: str = ""  # torch's, of its group: those of one mesh dimension have one description
    worked: float | None = None  # seconds of the rank's own work since its last call of the group, in a trace

    def __str__(self):
        return f"{self.operation}{' of ' * bool(self.tensors)}{self.tensors}, {self.line}"

    @property
    def kind(self):
        return self.operation, "" if UNEVEN.match(self.operation) else self.tensors


class Message(NamedTuple):
    """Point-to-point. ``is_last``: was nothing issued after it, but the rest of its batch?"""

    group: tuple = ()  # and torch's name of it; none: it was not read
    sent: bool = True
    own: int = 0  # rank of the group
    other: int = 0
    line: str = ""
    is_last: bool = False


class Unreadable(ValueError):
    pass


class Recording(NamedTuple):
    path: Path
    is_trace: bool
    ranks: set  # whose file it is
    calls: list
    groups: dict  # (group, torch's name of it) -> its ranks, where the file lists them
    messages: list
    whole: bool = False  # no older entries were dropped


class PlainUnpickler(pickle.Unpickler):
    """A restricted unpickler (lists, dicts, strings, numbers): an untrusted file must not run code."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"it would import {module}.{name}")


def unpickled(file):
    """A file of a few bytes may ask for gigabytes: of data that it does not have, or of places to remember it."""
    size = file.seek(0, 2)
    file.seek(0)
    data = file.read(size)
    for opcode, argument, _ in pickletools.genops(data):
        if "PUT" in opcode.name and argument > size:
            raise pickle.UnpicklingError(f"{opcode.name} {argument} in {size} bytes")
    return PlainUnpickler(io.BytesIO(data)).load()


def read(path):
    """(calls, group -> its ranks where the file says so)"""
    found = recording(path)
    return found.calls, {group: ranks for (group, _), ranks in found.groups.items()}


def recording(path):
    """Raises ``Unreadable``."""
    try:
        with open(path, "rb") as file:
            content = json.load(file) if file.peek(1)[:1] == b"{" else unpickled(file)
        if isinstance(content, dict) and "entries" in content:
            return of_record(content, path)
        if isinstance(content, dict) and "traceEvents" in content:
            return of_trace(content, path)
    except OSError as error:
        raise Unreadable(f"diagnose: {path}: {error.strerror or error}") from error
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"diagnose: {path}: neither a trace nor a Flight Recorder dump: {error!r}") from error
    raise Unreadable(f"diagnose: {path}: a trace has traceEvents, a Flight Recorder dump has entries; this has neither")


def of_record(content, path):
    digits = re.search(r"\d+$", Path(path).stem)
    if not digits or int(digits[0]) >= MOST_RANKS:
        raise Unreadable(f"diagnose: {path}: the name of a Flight Recorder dump must end with its rank, as rank_0")
    rank, calls, entries = int(digits[0]), defaultdict(list), content["entries"]
    for entry in (each for each in entries if not each["is_p2p"]):
        call = of_entry(entry, rank)
        own = calls[call.group, call.name]
        if own and call.number <= own[-1].number:  # a new group with the name of an older one
            own.clear()
        own.append(call)
    groups = [each for each in content.get("pg_config", {}).values() if each["ranks"] != "[]"]  # gloo's are empty
    ranks_of = {identity(each["name"], each["desc"]): set(map(int, json.loads(each["ranks"]))) for each in groups}
    calls, whole = [call for own in calls.values() for call in own], not entries or entries[0].get("record_id") == 0
    return Recording(path, False, {rank}, calls, ranks_of, [*messages_in(entries)][::-1], whole)


def messages_in(entries):
    """The newest first. All of a batch have one number."""
    is_last, batch = True, lambda entry: (entry.get("process_group"), entry.get("p2p_seq_id"))
    for entry in reversed(entries):
        name = entry.get("profiling_name", "")
        is_last &= (entry["is_p2p"] or name.endswith(":coalesced")) and batch(entry) == batch(entries[-1])
        if entry["is_p2p"]:
            found = MESSAGE.fullmatch(name)
            yield message_of(entry, *found.groups(), is_last) if found else Message()


def message_of(entry, sender, receiver, other, is_last):
    return Message(
        identity(*entry["process_group"]), bool(sender), int(sender or receiver), int(other), line_of(entry), is_last
    )


def of_entry(entry, rank):
    tensors = [f"{size} {dtype}" for size, dtype in zip(entry["input_sizes"], entry["input_dtypes"])]
    operation = entry["profiling_name"].partition(":")[2]
    number, at = int(entry["collective_seq_id"]), entry["time_created_ns"] / 1e9
    group, name = identity(*entry["process_group"])
    return RecordedCall(rank, group, number, operation, ", ".join(tensors), line_of(entry), at, name)


def line_of(entry):
    own = [each for each in entry["frames"] if "/torch/" not in each["filename"]] or entry["frames"]
    return f"{own[0]['filename']}:{own[0]['line']} in {own[0]['name']}" if own else "its line was not recorded"


def identity(name, description):
    return str(description) if description not in ("", "undefined") else f"group {name}", str(name)


def of_trace(content, path):
    calls = calls_in(content["traceEvents"])
    if not calls:
        raise Unreadable(f"diagnose: {path}: no communication in a trace; is it of torch.profiler, or of one rank?")
    return Recording(path, True, {int(call.rank) for call in calls}, calls, {}, [])


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
            worked = about["worked"] / 1e6 if "worked" in about else None
            calls.append(RecordedCall(*place, numbers[place], *how, worked=worked))
    return calls
