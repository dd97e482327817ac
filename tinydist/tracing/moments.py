"""Moments of a rank: seconds, or the name of a mark or a region. Marks and regions that repeat are ("step", 2), from 0.

Several things happen at one instant of virtual time. Their order is that of the rank's record: a name is a moment
between what the rank did before it and after it, and seconds are the end of all that happens at that time.
"""

import math
from typing import NamedTuple

from ..rules import amount, integer


class Mark(NamedTuple):
    rank: int
    name: str
    time: float  # seconds
    place: int  # in the rank's record

    start = end = property(lambda self: self.time)
    last = property(lambda self: self.place)

    def shifted(self, seconds):
        return self._replace(time=self.time + seconds)


class Region(NamedTuple):
    rank: int
    name: str
    start: float  # seconds
    end: float
    depth: int  # 0: in no other
    place: int  # of its begin in the rank's record
    last: float  # of its end

    def shifted(self, seconds):
        return self._replace(start=self.start + seconds, end=self.end + seconds)


class Moment(NamedTuple):
    time: float
    place: float | None  # None: at the end of that time

    def before(self, time, place):
        """Does what happened then, and there in the record, come after this moment?"""
        return time > self.time if self.place is None else place > self.place


def moment_of(moment, named, rank, at_end=False):
    """``named``: the rank's marks and regions. A region's moment is its begin, or its end."""
    if moment is None:
        return Moment(math.inf, None) if at_end else Moment(-math.inf, None)
    if amount(moment):
        return Moment(moment, None)
    name, number = moment if isinstance(moment, tuple) and len(moment) == 2 else (moment, 0)
    if not isinstance(name, str) or not integer(number):
        raise ValueError(f'a moment must be seconds, a name, or one of several as ("step", 2), got {moment!r}')
    found = [each for each in named if each.name == name]
    try:
        chosen = found[number]
    except IndexError:
        there = ", ".join(dict.fromkeys(repr(each.name) for each in named)) or "none"
        many = f"{len(found)} named {name!r}, got {moment!r}" if found else f"none named {name!r}; there are: {there}"
        raise ValueError(f"rank {rank} has these marks and regions: {many}") from None
    return Moment(chosen.end, chosen.last) if at_end else Moment(chosen.start, chosen.place)
