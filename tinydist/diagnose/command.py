"""``python -m tinydist diagnose FILES``: finds stragglers and hangs in what each rank has recorded of its calls.

    trace.json          of simulated ranks: ``run.trace.save("trace.json")``
    rank_0 rank_1 ...   PyTorch's Flight Recorder, a file for each rank, whose name ends with it; or their folder

Calls meet by their number within a group. Of each group the first is told to which not all have come, or at which they
call different things; and before it the first that fits but comes from different lines: there it often begins. If
nothing is wrong: who came last how often, and how long the next-to-last waited for him.

nccl's watchdog writes records when it gives up, to $TORCH_FR_DUMP_TEMP_FILE and the rank; gloo's are written by
``tinydist.processes.recorder.save_record``. The time of a call is when Python made it, by the clock of its machine.
gloo's records have no other times, and no messages.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path

from ..console.shell import command
from .recorded_calls import Unreadable, read


def diagnose(paths):
    """(lines, is anything wrong). Raises ``Unreadable``."""
    groups, ranks_of = defaultdict(lambda: defaultdict(dict)), {}  # group -> number -> rank -> call
    everybody = set()
    for path in paths:
        calls, said = read(path)
        ranks_of |= said
        everybody |= {call.rank for call in calls}
        for call in calls:
            groups[call.group][call.number][call.rank] = call
    ranks_of.setdefault("default_pg", everybody)
    wrong = [
        line for group, meetings in groups.items() for line in first_mismatch(group, meetings, ranks_of.get(group))
    ]
    return wrong or list(stragglers(groups)), bool(wrong)


def first_mismatch(group, meetings, ranks):
    """What is wrong first, if anything."""
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
    if aside:
        yield f"{group}, call {aside}: it fits, but comes from different lines"
        yield from together(meetings[aside])
    yield f"{group}, call {number}: " + (f"{those(missing)} did not come" if missing else "it does not fit")
    yield from together(calls)
    for rank in missing:
        last = max(numbers[rank], default=None)
        before = f"its last call is {last}, {meetings[last][rank]}" if last else "no call of it is recorded"
        yield f"    rank {rank}: {before}"


def together(calls):
    """Ranks that did the same share a line; the fewest come first."""
    same = defaultdict(list)
    for rank in sorted(calls):
        same[str(calls[rank])].append(rank)
    return [f"    {those(ranks)}: {words}" for words, ranks in sorted(same.items(), key=lambda each: len(each[1]))]


def those(ranks):
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def stragglers(groups):
    """Who came last, to how many calls, and what the next-to-last waited for him."""
    waits = defaultdict(list)  # rank -> (seconds, words)
    meetings = [(group, number, calls) for group in groups for number, calls in groups[group].items() if len(calls) > 1]
    for group, number, calls in meetings:
        *_, before, last = sorted(calls.values(), key=lambda call: call.at)
        if last.at > before.at:
            waits[last.rank].append((last.at - before.at, f"{group}, call {number}: {last}"))
    yield f"all ranks came to all of {len(meetings)} calls, and what they called fits"
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
    about = "Find stragglers and hangs from traces and Flight Recorder dumps."
    asks = argparse.ArgumentParser(prog=command("diagnose"), description=about)
    asks.add_argument("files", nargs="+", help="a saved trace; Flight Recorder dumps, one per rank, or their folder")
    try:
        lines, wrong = diagnose(files_in(asks.parse_args(words).files))
    except Unreadable as error:
        print(error, file=sys.stderr)
        return 2
    print(*lines, sep="\n")
    return int(wrong)
