"""Points in a rank's time: seconds, or the name of a mark or region; ("step", 2) is the third of that name.

Several things happen at one instant of virtual time. Their order is that of the rank's record: a name is a time point
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


class TimePoint(NamedTuple):
    time: float
    place: float | None  # None: at the end of that time

    def before(self, time, place):
        """Does what happened then, and there in the record, come after this time point?"""
        return time > self.time if self.place is None else place > self.place


def time_point_of(time_point, named, rank, at_end=False):
    """``named``: the rank's marks and regions. A region's time point is its begin, or its end."""
    if time_point is None:
        return TimePoint(math.inf, None) if at_end else TimePoint(-math.inf, None)
    if amount(time_point):
        return TimePoint(time_point, None)
    name, number = time_point if isinstance(time_point, tuple) and len(time_point) == 2 else (time_point, 0)
    if not isinstance(name, str) or not integer(number):
        raise ValueError(f'a time point must be seconds, a name, or one of several as ("step", 2), got {time_point!r}')
    found = [each for each in named if each.name == name]
    try:
        chosen = found[number]
    except IndexError:
        there = ", ".join(dict.fromkeys(repr(each.name) for each in named)) or "none"
        few = f"{len(found)} named {name!r}, got {time_point!r}"
        many = few if found else f"none named {name!r}; there are: {there}"
        raise ValueError(f"rank {rank} has these marks and regions: {many}") from None
    return TimePoint(chosen.end, chosen.last) if at_end else TimePoint(chosen.start, chosen.place)
