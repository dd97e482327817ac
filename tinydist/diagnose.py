"""``python -m tinydist diagnose FILES``: who keeps the others waiting, by what each rank has recorded of its calls.

    trace.json          of simulated ranks: ``run.trace.save("trace.json")``
    rank_0 rank_1 ...   PyTorch's Flight Recorder, a file for each rank, whose name ends with its number; or their folder

Calls of a group meet by their number: the third call of one rank, and the third of each other. Of each group the first
number is told

    to which not all have come        whoever is missing, where the others wait, and where he called last
    at which they do not fit          other operations, sizes or dtypes

and before it the first that fits but comes from different lines: there it often begins. If nothing is wrong: who came
last how often, and how long the next-to-last waited for him.

nccl's watchdog writes records when it gives up (TORCH_FR_DUMP_TEMP_FILE says where), gloo's are written by
``tinydist.processes.recorder.save_record``. They have the time of each call, when Python made it, by the clock of its
machine; gloo's have no others, and their state stays "scheduled". They have no messages.
"""

import argparse
import json
import pickle
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from .shell import command

# Their ranks may give, or get, tensors of other sizes (torch.distributed.flight_recorder checks as little of them).
UNEVEN = "all_to_all", "gather", "scatter", "_v"


class Call(NamedTuple):
    rank: int
    group: str
    number: int  # within its group
    operation: str
    tensors: str  # "[4] Float"
    line: str
    at: float  # seconds, by the clock of its rank

    def __str__(self):
        return f"{self.operation}{' of ' * bool(self.tensors)}{self.tensors}, {self.line}"

    @property
    def kind(self):
        return self.operation, "" if any(each in self.operation for each in UNEVEN) else self.tensors


class Unreadable(ValueError):
    """A file that is neither."""


# Files.


class Plain(pickle.Unpickler):
    """Of lists, dicts, texts and numbers alone: a file of others must not run code here."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"it would import {module}.{name}")


def read(path):
    """(calls, group -> its ranks where the file says so)"""
    try:
        with open(path, "rb") as file:
            content = json.load(file) if file.peek(1)[:1] == b"{" else Plain(file).load()
    except OSError as error:
        raise Unreadable(f"diagnose: {path}: {error.strerror}") from error
    except Exception as error:
        raise Unreadable(f"diagnose: {path}: neither JSON nor a pickle of a Flight Recorder: {error}") from error
    known = content if isinstance(content, dict) else {}
    try:
        if "entries" in known:
            return of_record(known, path)
        if "traceEvents" in known:
            return list(of_trace(known["traceEvents"], path)), {}
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise Unreadable(f"diagnose: {path}: its calls are not as expected: {error!r}") from error
    raise Unreadable(f"diagnose: {path}: it has neither the traceEvents of a trace nor the entries of a Flight Recorder")


def of_record(content, path):
    rank = re.search(r"\d+$", Path(path).stem)
    if not rank:
        raise Unreadable(f"diagnose: {path}: the name of a Flight Recorder's file must end with its rank, as rank_0 does")
    calls = defaultdict(list)
    for entry in content["entries"]:
        if not entry["is_p2p"]:
            call = of_entry(entry, int(rank[0]))
            own = calls[call.group]
            if own and call.number <= own[-1].number:  # a group made anew, which has the name of an older one
                own.clear()
            own.append(call)
    groups = {named(each["name"], each["desc"]): set(json.loads(each["ranks"])) for each in groups_in(content)}
    return sum(calls.values(), []), groups


def groups_in(content):
    """gloo's have no ranks."""
    return [each for each in content.get("pg_config", {}).values() if each["ranks"] != "[]"]


def of_entry(entry, rank):
    tensors = [f"{size} {dtype}" for size, dtype in zip(entry["input_sizes"], entry["input_dtypes"])]
    own = [each for each in entry["frames"] if "/torch/" not in each["filename"]] or entry["frames"]
    line = f"{own[0]['filename']}:{own[0]['line']} in {own[0]['name']}" if own else "its line was not recorded"
    operation = entry["profiling_name"].partition(":")[2]
    number, at = entry["collective_seq_id"], entry["time_created_ns"] / 1e9
    return Call(rank, named(*entry["process_group"]), number, operation, ", ".join(tensors), line, at)


def named(name, description):
    return description if description not in ("", "undefined") else f"group {name}"


def of_trace(events, path):
    streams = {(each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"}
    numbers = Counter()
    for each in events:
        if each.get("cat") == "communication" and each["name"] != "wait":
            if "issued" not in each["args"]:
                raise Unreadable(f"diagnose: {path}: it does not say when ranks called: save it anew, by run.trace.save")
            place = each["pid"], streams[each["pid"], each["tid"]]
            numbers[place] += 1
            about = [each["args"][key] for key in ("during", "part", "regions") if key in each["args"]]
            line, at = f"in {', '.join(about) or 'the program'}", each["args"]["issued"] / 1e6
            yield Call(*place, numbers[place], each["name"], f"{each['args']['bytes']:,} bytes", line, at)


# What they say.


def diagnose(paths):
    """(lines, is anything wrong). Raises ``Unreadable``."""
    calls, ranks_of = [], {}
    for path in paths:
        found, said = read(path)
        calls, ranks_of = calls + found, ranks_of | said
    groups = defaultdict(lambda: defaultdict(dict))  # group -> number -> rank -> call
    for call in calls:
        groups[call.group][call.number][call.rank] = call
    ranks_of.setdefault("default_pg", {call.rank for call in calls})
    wrong = [line for group, meetings in groups.items() for line in judged(group, meetings, ranks_of.get(group, ()))]
    return wrong or list(latest(groups)), bool(wrong)


def judged(group, meetings, ranks):
    """What is wrong first, if anything."""
    numbers = {rank: [n for n in meetings if rank in meetings[n]] for rank in ranks or set().union(*meetings.values())}
    begin = max(min(own, default=0) for own in numbers.values())  # what is older, some have dropped
    clear = []
    for number in sorted(n for n in meetings if n >= begin):
        calls, missing = meetings[number], [rank for rank in sorted(numbers) if rank not in meetings[number]]
        differ = len({call.kind for call in calls.values()}) > 1
        if missing or differ:
            break
        clear.append(number)
    else:
        return
    aside = next((n for n in clear if len({call.line for call in meetings[n].values()}) > 1), None)
    if aside:
        yield f"{group}, call {aside}: it fits, but comes from different lines"
        yield from together(meetings[aside])
    words = ["the ranks call different things"] * differ + [f"{those(missing)} did not come"] * bool(missing)
    yield f"{group}, call {number}: {'; '.join(words)}"
    yield from together(calls)
    for rank in missing:
        last = max((n for n in numbers[rank]), default=None)
        before = f"its last call is {last}: {meetings[last][rank]}" if last else "no call of it is recorded"
        yield f"    rank {rank}: {before}"


def together(calls):
    """Ranks that did the same share a line; the fewest come first."""
    same = defaultdict(list)
    for rank in sorted(calls):
        same[str(calls[rank])].append(rank)
    for words, ranks in sorted(same.items(), key=lambda each: len(each[1])):
        yield f"    {those(ranks)}: {words}"


def those(ranks):
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def latest(groups):
    """Who came last, to how many calls, and what the next-to-last waited for him."""
    waits = defaultdict(list)  # rank -> (seconds, words)
    met = 0
    for group, meetings in groups.items():
        for number, calls in meetings.items():
            *_, before, last = [None, *sorted(calls.values(), key=lambda call: call.at)]
            met += 1
            if before and last.at > before.at:
                waits[last.rank].append((last.at - before.at, f"{group}, call {number}: {last}"))
    yield f"all ranks came to all of {met} calls, and what they called fits"
    for rank, own in sorted(waits.items(), key=lambda each: -sum(wait for wait, _ in each[1]))[:3]:
        total, (longest, words) = sum(wait for wait, _ in own), max(own)
        yield f"rank {rank} came last to {len(own)}: the next-to-last waited {1e3 * total:,.3g} ms in all"
        yield f"    the longest, {1e3 * longest:,.3g} ms, at {words}"


# The command.


def files_in(paths):
    """A folder stands for its files."""
    for path in map(Path, paths):
        yield from sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]


def main(words):
    """The exit status: 0, 1 if something is wrong, 2 for files that cannot be read."""
    asks = argparse.ArgumentParser(prog=command("diagnose"), description="Who keeps the others waiting?")
    asks.add_argument("files", nargs="+", help="a saved trace; Flight Recorder's files, one a rank, or their folder")
    try:
        lines, wrong = diagnose(list(files_in(asks.parse_args(words).files)))
    except Unreadable as error:
        print(error, file=sys.stderr)
        return 2
    print(*lines, sep="\n")
    return int(wrong)
