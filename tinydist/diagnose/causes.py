"""Where a hang in several groups began: with a rank that is missing and waits for nobody, or with a cycle of waits.

A group that stands still names ranks that did not join. Most of them are victims: they wait in a call of another group.
The causes among them are, in the order of the report,

1. calls whose operations or sizes differ, also where somebody is missing besides;
2. ranks that did not join and wait for nobody: they do something else, have ended, or left no file;
3. ranks that wait for one another.

Only collectives are followed. Of a rank that has point-to-point messages on record, nobody knows here whether it waits
in one: it is said to wait in no collective, and if its last call is a recv that nobody has sent, that is told, too.
"""

from collections import defaultdict
from typing import NamedTuple


class Stuck(NamedTuple):
    """The first call of a group that some ranks did not make, or in which they differ."""

    group: str
    number: int
    calls: dict  # rank -> its call
    missing: list  # ranks
    lines: list  # of the report

    @property
    def differs(self):
        return len({call.kind for call in self.calls.values()}) > 1


def causes(stuck, without_file, may_wait=frozenset(), messages=frozenset(), not_sent=None):
    """[(ranks, words)], the likeliest first.

    ``without_file``: rank -> those in the group of its last call that left no file. ``may_wait``: ranks whose last call
    is in a group that has other members than those on record; they are causes only if there are no others.
    ``messages``: ranks that have point-to-point messages on record. ``not_sent``: rank -> the last one, in words.
    """
    waits = waits_for(stuck, without_file)
    found, explained = [], set()
    for each in stuck:
        if each.differs:
            found.append((set(each.calls), f"{each.group}, call {each.number}: the calls do not match"))
            explained |= set(each.calls)
    ends = set().union(*waits.values()) - waits.keys() - explained
    named = ends - may_wait or ends
    behind = {rank: waiting(waits, {rank}) for rank in named}
    gone = set().union(*without_file.values())
    for rank in sorted(named, key=lambda rank: (-len(behind[rank]), rank)):
        nowhere = "waits in no collective" if rank in messages else "waits for nobody"
        nowhere += f": the last that it called is {not_sent[rank]}" if rank in (not_sent or ()) else ""
        what = "has left no file" if rank in gone else f"did not join, and {nowhere}"
        found.append(({rank}, f"rank {rank} {what}; {those(behind[rank])} wait{'s' * (len(behind[rank]) == 1)} for it"))
    explained |= ends
    explained |= waiting(waits, explained)
    while rest := waits.keys() - explained:
        circle = circle_from(min(rest), waits)
        found.append((circle, f"{those(circle)} wait for one another"))
        explained |= circle | waiting(waits, circle)
    return found


def causes_first(stuck, found):
    """Calls that do not match, then groups in which somebody waits for a cause, then those of victims alone."""

    def place(each):
        waited_for = (place for place, (ranks, _) in enumerate(found) if ranks & set(each.missing))
        return not each.differs, next(waited_for, len(found))

    return sorted(stuck, key=place)


def waits_for(stuck, without_file):
    """rank -> the ranks for which it waits."""
    waits = defaultdict(set)
    for each in stuck:
        if each.missing:
            for rank in each.calls:
                waits[rank] |= set(each.missing)
    stand = {rank for each in stuck for rank in each.calls}
    return waits | {rank: gone for rank, gone in without_file.items() if rank not in stand}


def waiting(waits, ranks):
    """All that wait for one of ``ranks``, directly or through others."""
    found = set()
    while new := {rank for rank, others in waits.items() if others & (ranks | found)} - found:
        found |= new
    return found


def circle_from(rank, waits):
    """Waits are followed until a rank comes again: those from there on are the circle."""
    path = []
    while rank not in path:
        path.append(rank)
        rank = min(waits[rank])
    return set(path[path.index(rank) :])


def those(ranks):
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))}"
