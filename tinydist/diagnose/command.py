"""``python -m tinydist diagnose FILES``: find stragglers and hangs in the recorded calls of all ranks.

    trace.json          of simulated ranks: ``run.trace.save("trace.json")``
    rank_0 rank_1 ...   PyTorch's Flight Recorder, a file for each rank, whose name ends with it; or their folder

Calls are matched by their sequence number within a group. For each group the report shows the first call that some
ranks did not make, or in which they differ; and before it the first matching call from different source lines, often
the cause. Where several groups stand still, the report begins with the ranks at which the waits end (``causes``), and
with the groups that wait for those. If all calls match: which rank came last how often, and how long the next-to-last
waited for it; of a trace, a rank that was late once counts once (``waits_for_last``). A rank whose last call is a recv
that nobody has sent is told (messages.py).

NCCL's watchdog dumps records on a timeout, to $TORCH_FR_DUMP_TEMP_FILE plus the rank; gloo's are written by
``tinydist.processes.flight_recorder.save_record``. The time of a call is when Python issued it, by its
machine's clock. gloo's records have no other times, and no point-to-point messages.

The ranks are those of the files, and of the groups that the files list. Where a rank has left no file, or nobody has
recorded a collective, nothing is said of whether all came: ``NotJudged``.
"""

import argparse
import math
import sys
from collections import Counter, defaultdict
from pathlib import Path

from ..console.command_name import command
from .causes import Stuck, causes, causes_first, those
from .messages import not_sent
from .recorded_calls import Unreadable, recording

WORLD = "default_pg"
ROUNDING = 2e-9  # seconds: a trace has whole nanoseconds


class NotJudged(ValueError):
    """Nothing is wrong in what is recorded, and it is not enough to say that all is well."""


def diagnose(paths):
    """The report: (lines, whether a problem was found). Raises ``Unreadable`` and ``NotJudged``."""
    recordings = of_one_job([recording(path) for path in paths])
    there = {rank for each in recordings for rank in each.ranks}
    calls, ranks_of = told_apart(recordings)
    groups = groups_of(calls)
    named = [rank for each in recordings if not each.is_trace for rank in each.ranks]
    everybody = ranks_of[WORLD] = there | ranks_of.get(WORLD, set()) | set(range(max(named, default=0)))
    stuck = []
    for group, meetings in groups.items():
        members = ranks_of.get(group)
        stuck += first_mismatch(group, meetings, members and members & there)
    unsent = not_sent(recordings)
    if not stuck and unsent and everybody <= there:
        return [f"rank {rank}: the last that it called is {words}" for rank, words in sorted(unsent.items())], True
    if not stuck:
        check_enough(recordings, groups, everybody - there)
        return list(stragglers(groups)), False
    without_file = last_met_without_file(calls, ranks_of, there)
    messages = {rank for each in recordings if each.messages for rank in each.ranks}
    found = causes(stuck, without_file, last_met_unlisted(calls, ranks_of), messages, unsent)
    told = len(stuck) == 1 and found[0][0] <= {*stuck[0].missing, *stuck[0].calls}  # by its own lines
    told = told and not found[0][0] & unsent.keys()
    begin = [] if told else [f"start here: {words}" for _, words in found]
    return begin + [line for each in causes_first(stuck, found) for line in each.lines], True


def last_met_without_file(calls, ranks_of, there):
    """rank -> the ranks without a file in the group of its last call, if any: whether they came there, nobody knows."""
    last = {call.rank: call for call in sorted(calls, key=lambda call: call.at)}
    gone = {rank: ranks_of.get(call.group, set()) - there for rank, call in last.items()}
    return {rank: ranks for rank, ranks in gone.items() if ranks}


def last_met_unlisted(calls, ranks_of):
    """Ranks whose last call is in a group that no file lists, and that has fewer callers than another of its mesh
    dimension: somebody has never called there, and nobody knows who."""
    called, last = defaultdict(set), {}
    for call in sorted(calls, key=lambda call: call.at):
        called[call.group].add(call.rank)
        last[call.rank] = call.group
    most = Counter()
    for group, ranks in called.items():
        most[dimension(group)] = max(most[dimension(group)], len(ranks))
    return {
        rank for rank, group in last.items() if group not in ranks_of and len(called[group]) < most[dimension(group)]
    }


def dimension(group):
    """ "2:mesh_dp" -> "mesh_dp" """
    return group.rpartition(":")[2]


def of_one_job(recordings):
    """Raises ``Unreadable`` for a trace beside something else, or two files of one rank."""
    traces = [each.path for each in recordings if each.is_trace]
    if traces and len(recordings) > 1:
        raise Unreadable(f"diagnose: {traces[0]}: a trace has all ranks of a job: give it alone")
    first = {}
    for each in recordings:
        for rank in each.ranks:
            if rank in first:
                raise Unreadable(f"diagnose: {each.path}: rank {rank} has another file, {first[rank]}")
            first[rank] = each.path
    return recordings


def told_apart(recordings):
    """All calls, and group -> its ranks where a file lists them. Where several groups have one description, as those of
    a mesh dimension, each is called by its name, too: 2:mesh_dp, as torchfrtrace does."""
    calls = [call for each in recordings for call in each.calls]
    listed = {key: ranks for each in recordings for key, ranks in each.groups.items()}
    names = defaultdict(set)
    for group, name in [*listed, *((call.group, call.name) for call in calls)]:
        names[group].add(name)

    def words(group, name):
        return group if group == WORLD or len(names[group]) == 1 else f"{name}:{group}"

    calls = [call._replace(group=words(call.group, call.name)) for call in calls]
    return calls, {words(*key): ranks for key, ranks in listed.items()}


def check_enough(recordings, groups, absent):
    """Raises ``NotJudged`` if ranks, or all collectives, are missing from the recordings."""
    if not recordings:
        raise NotJudged("there is no file")
    calls = sum(map(len, groups.values()))
    if not calls:
        messages = sum(len(each.messages) for each in recordings)
        beside = f" ({messages} point-to-point messages are)" * bool(messages)
        raise NotJudged(f"no collective is recorded{beside}")
    if absent:
        raise NotJudged(
            f"there is no file of {those(sorted(absent))}. The others have recorded {calls} calls, which match. A "
            "process that was killed leaves no file: look for its log first"
        )
    silent = [rank for each in recordings if not each.calls for rank in each.ranks]
    if silent:
        raise NotJudged(
            f"{those(silent)} recorded nothing, and others {calls} calls, of groups whose ranks no file lists"
        )


def groups_of(calls, groups=None):
    """group -> number -> rank -> call"""
    groups = defaultdict(lambda: defaultdict(dict)) if groups is None else groups
    for call in calls:
        groups[call.group][call.number][call.rank] = call
    return groups


def first_mismatch(group, meetings, ranks):
    """The first call of the group that is ``Stuck``, if any."""
    numbers = {rank: [n for n in meetings if rank in meetings[n]] for rank in ranks or set().union(*meetings.values())}
    begin = max(min(own, default=0) for own in numbers.values())  # what is older, some have dropped
    aside = None
    for number in sorted(n for n in meetings if n >= begin):
        calls = meetings[number]
        missing = sorted(numbers.keys() - calls.keys())
        if missing or len({call.kind for call in calls.values()}) > 1:
            break
        if aside is None and len({call.line for call in calls.values()}) > 1:
            aside = number
    else:
        return
    lines = []
    if aside:
        lines.append(f"{group}, call {aside}: it matches, but comes from different lines of code")
        lines += together(meetings[aside])
    wrong = ["the calls do not match"] * (len({call.kind for call in calls.values()}) > 1)
    wrong += [f"{those(missing)} did not join"] * bool(missing)
    lines.append(f"{group}, call {number}: {', and '.join(wrong)}")
    lines += together(calls)
    for rank in missing:
        last = max(numbers[rank], default=None)
        before = f"its last call is {last}, {meetings[last][rank]}" if last else "no call of it is recorded"
        lines.append(f"    rank {rank}: {before}")
    yield Stuck(group, number, calls, missing, lines)


def together(calls):
    """Group ranks with the same call on one line, smallest group first."""
    same = defaultdict(list)
    for rank in sorted(calls):
        same[str(calls[rank])].append(rank)
    return [f"    {those(ranks)}: {words}" for words, ranks in sorted(same.items(), key=lambda each: len(each[1]))]


def stragglers(groups):
    """Stragglers: which ranks came last, how often, and how long the next-to-last rank waited."""
    waits, meetings = waits_for_last(groups)
    yield f"all ranks joined all of {meetings} calls, and the calls match"
    for rank, own in sorted(waits.items(), key=lambda each: -sum(wait for wait, _ in each[1]))[:3]:
        total, (longest, words) = sum(wait for wait, _ in own), max(own)
        yield f"rank {rank} joined last in {len(own)}: the next-to-last waited {1e3 * total:,.3g} ms in all"
        yield f"    the longest, {1e3 * longest:,.3g} ms, at {words}"


def waits_for_last(groups):
    """{rank: [(seconds for which the next-to-last waited for it, the call in words)]}, and the number of calls.

    In a trace only new lateness counts. A rank that was late once may come last for long: its CPU is behind, while
    those of the ranks that waited have launched what follows. So of the wait for the last rank counts what it has
    worked longer than any other, since the last call of the group, and has not been counted in another group since
    then. What ranks have waited for is no work: a rank that was made late by another is not counted. Flight
    Recorder's dumps do not tell work from waiting; there the whole wait counts, in each call.
    """
    waits, counted, before = defaultdict(list), Counter(), Counter()  # counted: by rank; before: until its last call
    meetings = [(group, number, calls) for group in groups for number, calls in groups[group].items() if len(calls) > 1]
    for group, number, calls in sorted(meetings, key=lambda each: max(call.at for call in each[2].values())):
        *_, ahead, last = sorted(calls.values(), key=lambda call: call.at)
        wait = min(last.at - ahead.at, longer(calls, last.rank, lambda rank: counted[rank] - before[group, rank]))
        if wait > ROUNDING:
            waits[last.rank].append((wait, f"{group}, call {number}: {last}"))
            counted[last.rank] += wait
        for rank in calls:
            before[group, rank] = counted[rank]
    return waits, len(meetings)


def longer(calls, last, counted):
    """Seconds that the last rank has worked longer than any other, without what was counted; inf if it is not known."""
    if any(call.worked is None for call in calls.values()):
        return math.inf
    new = {rank: call.worked - counted(rank) for rank, call in calls.items()}
    return new.pop(last) - max(new.values())


# The command.


def files_in(paths):
    """A folder stands for its files."""
    for path in map(Path, paths):
        yield from sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]


def main(words):
    """The exit status: 0, 1 if something is wrong, 2 for files that cannot be read, 3 if they are not enough."""
    about = "Find stragglers and hangs from traces and Flight Recorder dumps."
    asks = argparse.ArgumentParser(prog=command("diagnose"), description=about)
    asks.add_argument("files", nargs="+", help="a saved trace; Flight Recorder dumps, one per rank, or their folder")
    try:
        lines, wrong = diagnose(files_in(asks.parse_args(words).files))
    except Unreadable as error:
        print(printable(str(error)), file=sys.stderr)
        return 2
    except NotJudged as error:
        print(printable(f"not judged: {error}"))
        return 3
    print(*map(printable, lines), sep="\n")
    return int(wrong)


def printable(line):
    """What a terminal would take for a command is written out: names in files are anybody's."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in line)
