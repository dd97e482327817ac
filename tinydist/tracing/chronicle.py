"""The chronicle of a rank: its marks, its regions, and the changes of its memory, with names and in virtual time."""

import re

from .held import Change
from .labels import together
from .moments import Mark, Region
from .names import Begin, End, Where

UNIT = re.compile(r"FSDP::\w+(?: for (?P<target>\S+)| \((?P<unit>.*?)\))?")  # a region of fully_shard
BUCKETS = "bucket ", "used parameters"


class Spelled(dict):
    """Part -> its name, and Where -> the same with names, now that all is built."""

    def __missing__(self, what):
        if isinstance(what, Where):
            spelled = what._replace(part=self[what.part])
        else:
            spelled = "" if what is None else str(what)
        self[what] = spelled
        return spelled


class Chronicle:
    def __init__(self, rank, spelled):
        self.rank, self.spelled = rank, spelled
        self.named, self.open = [], []  # marks and regions; the numbers of those that have not ended
        self.changes = []
        self.wholes = {}  # the name of a parameter -> bytes of all of it

    def note(self, now, place, entry):
        """A mark, or the begin or the end of a region."""
        if isinstance(entry, Begin):
            self.open.append(len(self.named))
            self.named.append(Region(self.rank, entry.name, now, now, len(self.open) - 1, place, place))
        elif isinstance(entry, End):
            if self.open:
                number = self.open.pop()
                self.named[number] = self.named[number]._replace(end=now, last=place)
        else:
            self.named.append(Mark(self.rank, entry.name, now, place))

    def close(self, now):
        """What has not ended, because the program did not, ends with the rank."""
        while self.open:
            self.note(now, float("inf"), End(""))

    def change(self, now, place, entry):
        holding, *ends = entry
        sign = -1 if entry.after < entry.before else 1
        for size, label, shard in holding.labels(*sorted(ends)) or [(0, None, None)]:
            name = self.spelled[label]
            if getattr(label, "nbytes", 0):
                self.wholes[name] = max(label.nbytes, self.wholes.get(name, 0))
            self.changes.append(Change(now, holding.purpose, sign * size, name, shard, place))

    def aim(self, issue):
        """What a transfer is for: a bucket, a unit of fully_shard, or whose the bytes are that travel."""
        where = issue.where
        for region in reversed(where.regions):
            if region.startswith(BUCKETS):
                return region
            if unit := UNIT.fullmatch(region):
                return unit["target"] or unit["unit"] or "root"
        known = [part for part in issue.carried if part[0].pieces]
        if where.regions and not known:
            return where.regions[-1]
        carried = known or issue.carried
        return together([self.spelled[label] for holding, *ends in carried for _, label, _ in holding.labels(*ends)])
