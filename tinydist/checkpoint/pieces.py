"""Pieces of a parameter: which of its numbers they are, and what two of them have in common.

A piece is a run of numbers of a part. A part is what a cut has left of a parameter: the same columns of each line of a
matrix. Of an uncut parameter it is all of them, in as many lines as one likes to see.

    a part, 3 of 7 columns             . . a a p . .
    a piece of it: numbers 2 to 9      . . p p p . .        at most three boxes:
                                       . . p p p . .        the end of a line, whole lines, the beginning of one
                                       . . p a a . .

So what two pieces have in common is nine boxes at most, however each of them was cut and sharded. A box is copied at
once: nothing is held besides, and no other numbers are read.
"""

from math import prod
from typing import NamedTuple

from ..torch_internals import unobserved


class Segment(NamedTuple):
    """A part of a parameter that a rank owns. ``size`` may be 0."""

    start: int  # in the flat parameter
    place: int  # in this rank's shard
    size: int


class Part(NamedTuple):
    lines: int
    first: int  # column
    columns: int


class Piece(NamedTuple):
    part: Part | None  # None: all of an uncut parameter
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
        """A box inside of this one, in the vector [size] of the piece."""
        width = self.right - self.left
        first, last = (self.place + (line - self.top) * width for line in (inside.top, inside.bottom))
        return vector[first:last].view(-1, width)[:, inside.left - self.left : inside.right - self.left]


def part_of(parameter, shape):
    """(the shape of all of it, its ``Part``), for a parameter that is ``shape``d here."""
    cut = getattr(parameter, "cut", None)
    return (cut.whole_shape(shape), Part(*cut.columns(shape))) if cut else (shape, None)


def copy_common(shape, mine, vector, theirs, source):
    """Into ``vector``, which has the piece ``mine`` of a parameter of ``shape``, what ``source`` has of it."""
    lines = (mine.part or theirs.part or Part(1, 0, 0)).lines
    for own in boxes(mine, lines, prod(shape)):
        for other in boxes(theirs, lines, prod(shape)):
            if both := own.meet(other):
                with unobserved():  # a file's numbers are none of the rank's memory
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
