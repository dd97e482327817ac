"""Overlaps of shards: which elements a saved shard and a loaded one have in common (resharding).

A piece is a contiguous range of a part. A part is what tensor parallelism leaves of a parameter: the same columns of
each line of a matrix. An uncut parameter is one part, with any number of lines.

    a part, 3 of 7 columns             . . a a p . .
    a piece of it: elements 2 to 9      . . p p p . .        at most three boxes:
                                       . . p p p . .        the end of a line, whole lines, the beginning of one
                                       . . p a a . .

So the overlap of two pieces is at most nine boxes, however each was cut and sharded. A box is copied at once: without
temporary memory, and without reading anything else.
"""

from math import prod
from typing import NamedTuple

from ..torch_internals import unobserved


class Segment(NamedTuple):
    """A shard of a parameter. ``size`` may be 0."""

    start: int  # in the flat parameter
    place: int  # in the rank's shard
    size: int


class ParameterPart(NamedTuple):
    lines: int
    first: int  # column
    columns: int


class ParameterPiece(NamedTuple):
    part: ParameterPart | None  # None: an uncut parameter
    start: int  # in the part
    size: int


class Box(NamedTuple):
    top: int
    bottom: int
    left: int
    right: int
    place: int = 0  # of its first number, in the piece

    def meet(self, other):
        top, bottom = max(self.top, other.top), min(self.bottom, other.bottom)
        left, right = max(self.left, other.left), min(self.right, other.right)
        return Box(top, bottom, left, right) if top < bottom and left < right else None

    def view(self, vector, inside):
        """A view of a box inside of this one, in the vector [size] of the piece."""
        width = self.right - self.left
        first, last = (self.place + (line - self.top) * width for line in (inside.top, inside.bottom))
        return vector[first:last].view(-1, width)[:, inside.left - self.left : inside.right - self.left]


def part_of(parameter, shape):
    """(full shape, ``ParameterPart`` or None) of a parameter that has ``shape`` here."""
    cut = getattr(parameter, "cut", None)
    return (cut.whole_shape(shape), ParameterPart(*cut.columns(shape))) if cut else (shape, None)


def copy_common(shape, mine, vector, theirs, source):
    """Copy from piece ``theirs``, in ``source``, what overlaps with ``mine``, in ``vector``. ``shape``: in full."""
    lines = (mine.part or theirs.part or ParameterPart(1, 0, 0)).lines
    for own in boxes(mine, lines, prod(shape)):
        for other in boxes(theirs, lines, prod(shape)):
            if both := own.meet(other):
                with unobserved():  # a mapped file is not counted as the rank's memory
                    there = other.view(source, both)
                own.view(vector, both).copy_(there)


def boxes(piece, lines, numbers):
    _, first, columns = piece.part or (lines, 0, numbers // lines)
    at, end = piece.start, piece.start + piece.size
    while at < end:
        line, column = divmod(at, columns)
        whole = 0 if column else (end - at) // columns  # lines
        size = whole * columns or min(end - at, columns - column)
        left = first + column
        yield Box(line, line + max(whole, 1), left, left + size // max(whole, 1), at - piece.start)
        at += size
