"""Memory timeline of a rank in virtual time: bytes by purpose and by owner."""

from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from ..annotate import PURPOSES
from ..rules import one_of, validate
from .time_points import time_point_of


class Change(NamedTuple):
    seconds: float
    purpose: str
    nbytes: int  # negative: given back
    label: str  # the owner: "blocks.1.mlp.weight"
    shard: int | None  # the rank whose part of the whole it is
    place: int  # in the rank's record


class RankMemory(NamedTuple):
    """A rank's memory over time, by purpose and by label (ledger.py).

    A time point is seconds, or the name of a mark or a region of this rank (time_points.py).
    """

    peak: int
    at_peak: dict  # purpose -> bytes
    changes: list  # of Change
    rank: int = 0
    named: tuple = ()  # its marks and regions

    @classmethod
    def of_changes(cls, changes, rank, named):
        held = cls(0, {}, changes, rank, named)
        fullest = max((state for _, state in held.over_time()), key=lambda state: sum(state.values()), default={})
        return held._replace(peak=sum(fullest.values()), at_peak={key: n for key, n in fullest.items() if n})

    def __repr__(self):
        return f"<peak {self.peak:,} bytes: {self.at_peak}>"

    def over_time(self):
        """(seconds, {purpose: bytes}) after each change."""
        held = dict.fromkeys(PURPOSES, 0)
        for seconds, purpose, nbytes, *_ in self.changes:
            held[purpose] += nbytes
            yield seconds, dict(held)

    def at(self, time_point, by="purpose", purpose=None, label=None):
        """{purpose: bytes}, or by "label" or "shard", of what is held at a time point; of one purpose or label only."""
        return self.sums(key_of(by), time_point, purpose, label)

    def sums(self, key, time_point, purpose=None, label=None):
        held = {}
        for change in self.until(time_point):
            if is_asked(change, purpose, label):
                held[key(change)] = held.get(key(change), 0) + change.nbytes
        return {of: nbytes for of, nbytes in held.items() if nbytes}

    @property
    def is_idle(self):
        """It was not run, or has done nothing."""
        return not self.changes and not self.named

    def until(self, time_point):
        if self.is_idle:
            return []
        end = time_point_of(time_point, self.named, self.rank)
        return [change for change in self.changes if not end.before(change.seconds, change.place)]

    def series(self, purpose=None, label=None):
        """[(seconds, bytes)] after each change of a purpose, or of a label and all inside of it."""
        return [(seconds, nbytes) for seconds, _, nbytes in self._series(purpose, label)]

    def _series(self, purpose, label):
        found, nbytes = [], 0
        asked = [change for change in self.changes if is_asked(change, purpose, label)]
        for place, together in groupby(asked, attrgetter("place")):
            changes = list(together)
            nbytes += sum(change.nbytes for change in changes)
            found.append((changes[0].seconds, place, nbytes))
        return found

    def peak_between(self, begin=None, end=None, purpose=None, label=None):
        """The most bytes from one time point to another, what was held at the first among them."""
        begin, end = (time_point_of(each, self.named, self.rank, late) for each, late in ((begin, False), (end, True)))
        peak = 0
        for seconds, place, nbytes in self._series(purpose, label):
            if end.before(seconds, place):
                break
            peak = max(peak, nbytes) if begin.before(seconds, place) else nbytes
        return peak


@validate(by=one_of(["purpose", "label", "shard"]))
def key_of(by):
    return attrgetter(by)


def is_asked(change, purpose, label):
    return purpose in (None, change.purpose) and (label is None or is_inside(change.label, label))


def is_inside(name, label):
    """Is it that part of the model, or in it? All is inside of ""."""
    return label in ("", name) or name.startswith(label + ".")


class Held(NamedTuple):
    """What a rank has of a part of the model."""

    nbytes: int
    whole: int  # bytes of all of it
    shards: dict  # rank whose part it is (None: of no one) -> bytes

    @property
    def state(self):
        return "empty" if not self.nbytes else "whole" if self.nbytes >= self.whole else "shard"
