"""What one rank did, as blocks: successive operators of one name, the waits between them, and transfers in lanes."""

from copy import copy
from itertools import groupby, pairwise
from typing import NamedTuple

NARROW = 1 / 250  # of what is drawn: what is narrower has no name, and may be left out between two halves of a block


class Block(NamedTuple):
    start: float
    end: float
    kind: str  # "forward", "recompute", "backward", "weights", "optimizer", "compute", "waiting", "communication"
    name: str = ""

    @property
    def length(self):
        return self.end - self.start

    def since(self, moment):
        return self._replace(start=self.start - moment, end=self.end - moment)


class Row:
    """What ``rank`` did between two moments."""

    def __init__(self, trace, names, rank, since, until):
        self.rank, self.compute, self.waiting, self.communication = rank, [], [], []
        self.narrow = NARROW * (until - since)
        for event in trace.of(rank):
            start, end = max(event.start, since), min(event.end, until)
            if start >= end:
                continue
            if event.stream != "compute":
                self.communication.append(Block(start, end, "communication", names.of_transfer(event)))
            elif event.name == "wait":
                add(self.waiting, Block(start, end, "waiting"))
            else:
                add(self.compute, Block(start, end, *names.of_operator(event)), self.narrow)

    @property
    def lanes(self):
        """The transfers, dealt out to as few lists as can be, in each of which they come one after another.

        If all are too narrow to be told apart, to one.
        """
        if all(block.length < self.narrow for block in self.communication):
            return [sorted(self.communication)] if self.communication else []
        found = []
        for block in sorted(self.communication):
            free = next((lane for lane in found if lane[-1].end <= block.start), None)
            if free is None:
                found.append([block])
            else:
                free.append(block)
        return found

    def since(self, moment):
        """The same, counted from ``moment``."""
        shifted = copy(self)
        for kind in ("compute", "waiting", "communication"):
            setattr(shifted, kind, [block.since(moment) for block in getattr(self, kind)])
        return shifted

    def named(self, name):
        """All blocks of this name, or kind, in the order of time. Pieces of one, with waits between, are a whole."""
        found = [block for block in self.communication + self.waiting if name in (block.name, block.kind)]
        known = [block for block in self.compute if block.name or block.kind == name]
        for asked, together in groupby(known, lambda block: name in (block.name, block.kind)):
            if asked:
                first, last = ends(list(together))
                found.append(first._replace(end=last.end))
        return sorted(found)


def ends(blocks):
    return blocks[0], blocks[-1]


def add(blocks, block, narrow=0.0):
    """The last one goes on, or the one before it after a ``narrow`` break without a name, or ``block`` is a new one."""
    *_, before, last = None, None, *blocks
    if last and touch(last, block) and alike(last, block):
        blocks[-1] = last._replace(end=block.end)
    elif before and touch(before, last, block) and alike(before, block) and last.length < narrow and not last.name:
        blocks[-2:] = [before._replace(end=block.end)]
    else:
        blocks.append(block)


def touch(*blocks):
    return all(other.start <= block.end for block, other in pairwise(blocks))


def alike(block, other):
    return (block.kind, block.name) == (other.kind, other.name)


def covered(blocks):
    """Seconds in which there is any of them."""
    total, until = 0.0, float("-inf")
    for start, end, *_ in sorted(blocks):
        total += max(0.0, end - max(start, until))
        until = max(end, until)
    return total
