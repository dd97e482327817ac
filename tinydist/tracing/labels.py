"""Labels: whose bytes a storage has, piece by piece.

A parameter's memory has the parameter's name, and so have its gradients and its optimizer's states. What is known of no
parameter has the name of the module that made it. A program says what it knows better: ``label(tensor, "layer 1")``.
"""

from operator import attrgetter
from typing import NamedTuple
from weakref import ref


class Shard(int):
    """The rank whose part of the whole it is. ``dim``: along which the whole is cut."""

    def __new__(cls, rank, dim=0):
        shard = super().__new__(cls, rank)
        shard.dim = dim
        return shard


class Piece(NamedTuple):
    begin: int  # bytes from the start of the storage
    end: int
    label: object  # a str, or a Part of which the name is not known yet
    shard: Shard | None = None  # None: it is the whole


BEGIN = attrgetter("begin")


class Holding(ref):
    """A storage: a weak reference to it, and what is known of it. The record keeps it when the storage is gone."""

    __slots__ = ("address", "is_covered", "nbytes", "pieces", "purpose", "where")

    def has_label_in(self, begin, end):
        return bool(self.pieces) and any([piece.begin < end and begin < piece.end for piece in self.pieces])

    def be_all_of(self, label, shard):
        self.pieces, self.is_covered = (Piece(0, self.nbytes, label, shard),), True

    def add(self, piece):
        self.pieces = (*self.pieces, piece)
        self.is_covered = piece.end - piece.begin >= self.nbytes  # by one: nothing can be added
        if len(self.pieces) > 1:
            self.pieces = tuple(sorted(self.pieces, key=BEGIN))

    def replaced(self, new):
        """The pieces, with a new one over what was there."""
        kept = []
        for piece in self.pieces:
            kept += [piece._replace(end=min(piece.end, new.begin)), piece._replace(begin=max(piece.begin, new.end))]
        return tuple(sorted([new, *[piece for piece in kept if piece.begin < piece.end]], key=BEGIN))

    def within(self, begin, end):
        """The pieces between the two, counted from the first."""
        cut = [(max(piece.begin, begin) - begin, min(piece.end, end) - begin, piece) for piece in self.pieces]
        return [piece._replace(begin=low, end=high) for low, high, piece in cut if low < high]

    def labels(self, begin, end):
        """Of the bytes between the two: (bytes, label, shard), in order."""
        found, at = [], begin
        for piece in self.pieces:
            low, high = max(piece.begin, at), min(piece.end, end)
            if low < high:
                found += [(low - at, self.where.part, None)] if at < low else []
                found.append((high - low, piece.label, piece.shard))
                at = high
        return found + ([(end - at, self.where.part, None)] if at < end else [])


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
