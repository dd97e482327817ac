"""The event log of a rank: marks, regions and memory changes, with names, in virtual time."""

import re

from .memory_timeline import Change
from .scopes import RegionBegin, RegionEnd, Scope
from .time_points import Mark, Region

UNIT = re.compile(r"FSDP::\w+(?: for (?P<target>\S+)| \((?P<unit>.*?)\))?")  # a region of fully_shard
BUCKETS = "bucket ", "used parameters"


class Spelled(dict):
    """ModuleName -> its name, and Scope -> the same with names, now that all is built."""

    def __missing__(self, what):
        if isinstance(what, Scope):
            spelled = what._replace(module=self[what.module])
        else:
            spelled = "" if what is None else str(what)
        self[what] = spelled
        return spelled


class EventLog:
    def __init__(self, rank, spelled):
        self.rank, self.spelled = rank, spelled
        self.named, self.open = [], []  # marks and regions; the numbers of those that have not ended
        self.changes = []
        self.wholes = {}  # the name of a parameter -> bytes of all of it

    def add(self, now, place, entry):
        """A mark, or the begin or the end of a region."""
        if isinstance(entry, RegionBegin):
            self.open.append(len(self.named))
            self.named.append(Region(self.rank, entry.name, now, now, len(self.open) - 1, place, place))
        elif isinstance(entry, RegionEnd):
            if self.open:
                number = self.open.pop()
                self.named[number] = self.named[number]._replace(end=now, last=place)
        else:
            self.named.append(Mark(self.rank, entry.name, now, place))

    def close(self, now):
        """What has not ended, because the program did not, ends with the rank."""
        while self.open:
            self.add(now, float("inf"), RegionEnd(""))

    def change(self, now, place, entry):
        holding, *ends = entry
        sign = -1 if entry.after < entry.before else 1
        for size, label, shard in holding.labels(*sorted(ends)) or [(0, None, None)]:
            name = self.spelled[label]
            if getattr(label, "nbytes", 0):
                self.wholes[name] = max(label.nbytes, self.wholes.get(name, 0))
            self.changes.append(Change(now, holding.purpose, sign * size, name, shard, place))

    def content_of(self, issue):
        """What a transfer is for: a bucket, a unit of fully_shard, or the owner of the bytes that travel."""
        scope = issue.scope
        for region in reversed(scope.regions):
            if region.startswith(BUCKETS):
                return region
            if unit := UNIT.fullmatch(region):
                return unit["target"] or unit["unit"] or "root"
        known = [part for part in issue.carried if part[0].pieces]
        if scope.regions and not known:
            return scope.regions[-1]
        carried = known or issue.carried
        return together([self.spelled[label] for holding, *ends in carried for _, label, _ in holding.labels(*ends)])


def together(names):
    """One name for several: "blocks.1" for its parameters, "blocks.1 … head" for those of several modules."""
    paths = list(dict.fromkeys(tuple(name.split(".")) for name in names if name))
    if not paths:
        return ""
    common = list(paths[0])
    while any(path[: len(common)] != tuple(common) for path in paths):
        common.pop()
    first, last = (".".join(up_to_a_number(path, len(common))) for path in (paths[0], paths[-1]))
    apart = all(path[len(common) :][:1] and (path[len(common)].isdigit() or not common) for path in paths)
    return f"{first} … {last}" if apart and first != last else ".".join(common)


def up_to_a_number(path, place):
    """To the component at that place; and to the next one, if it is the number in a list of modules."""
    return path[: place + 1] + tuple(name for name in path[place + 1 : place + 2] if name.isdigit())
