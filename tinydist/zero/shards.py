"""Shards: which numbers of which parameter are whose. Two layouts, behind one interface.

    InARow        parameters in one row, cut wherever p equal parts end (DeepSpeed's, and FSDP's FlatParameter)

                  [   w1   ][ b1 ][   w2   ][ b2 ]00          padded to a multiple of p: at most p-1 numbers
                  [   0   |    1    |   2   |  3  ]           travels as it lies: nothing is copied

    ByParameter   each parameter cut along its dim 0, as by torch.chunk (fully_shard's)

                  w1 [ 0 | 1 | 2 | 3 ]   b1 [ 0 | 1 | 2 | 3 ]      each padded to p equal parts: up to (p-1)/p of it
                  [w1 b1|w1 b1|w1 b1|w1 b1]                        travels by rank: copied in and out, once more whole

A part in a row may begin in the midst of a matrix; by parameter, a rank has rows of it, and saves and quantizes those.
Either way optimizers must treat each number by itself, as SGD and Adam do: one that looks at a whole matrix (LAMB,
Muon, Adafactor) sees pieces. Padding is zero.
Sources: Rajbhandari et al., ZeRO, 2019, section 5; Zhao et al., PyTorch FSDP, 2023, section 3.2; torch's fully_shard.
"""

from itertools import accumulate
from math import prod

import torch

from ..checkpoint.pieces import Segment


class Layout:
    """Of parameters with these shapes on p ranks. Each rank owns ``own`` numbers, padding included.

    ``whole`` [p own] has all parameters, one after another from their ``starts``; the row that travels has the same
    numbers by rank. ``in_place``: are the two the same?
    """

    in_place = False

    def __init__(self, shapes, ranks):
        self.shapes, self.ranks, self.sizes = shapes, ranks, [prod(shape) for shape in shapes]

    @property
    def padding(self):
        return self.ranks * self.own - sum(self.sizes)

    def views(self, whole):
        """The parameters in it, each with its shape."""
        spans = zip(self.starts, self.sizes, self.shapes)
        return [whole[start : start + size].view(shape) for start, size, shape in spans]


class InARow(Layout):
    in_place = True

    def __init__(self, shapes, ranks):
        super().__init__(shapes, ranks)
        self.own = -(-sum(self.sizes) // ranks)
        self.starts = list(accumulate(self.sizes, initial=0))[:-1]

    def segments(self, rank):
        begin, end = rank * self.own, rank * self.own + self.own
        for at, size in zip(self.starts, self.sizes):
            first, last = max(at, begin), min(at + size, end)
            yield Segment(first - at, first - begin, last - first) if first < last else Segment(0, 0, 0)

    def shard_shape(self, shape, size):
        return (size,)

    def row_for(self, whole):
        """Where what ``whole`` is to have arrives."""
        return whole

    def by_parameter(self, row, whole):
        """From the row to ``whole``: it is there."""

    def by_rank(self, whole):
        """The row that has what is in ``whole``."""
        return whole


class ByParameter(Layout):
    def __init__(self, shapes, ranks):
        super().__init__(shapes, ranks)
        rows = [(shape or (1,))[0] for shape in shapes]
        self.parts = [-(-n // ranks) * prod(shape[1:]) for n, shape in zip(rows, shapes)]  # numbers, of each rank
        *self.places, self.own = accumulate(self.parts, initial=0)
        self.starts = [ranks * place for place in self.places]

    def segments(self, rank):
        for part, place, size in zip(self.parts, self.places, self.sizes):
            start = min(rank * part, size)
            yield Segment(start, place, min(part, size - start))

    def shard_shape(self, shape, size):
        return (size // max(prod(shape[1:]), 1), *shape[1:])

    def row_for(self, whole):
        return torch.empty_like(whole)

    def by_parameter(self, row, whole):
        for theirs, ours in self._parts(row, whole):
            ours.copy_(theirs)

    def by_rank(self, whole):
        row = torch.empty_like(whole)
        for theirs, ours in self._parts(row, whole):
            theirs.copy_(ours)
        return row

    def _parts(self, row, whole):
        """Of each parameter, [p, part] in the row and in ``whole``."""
        grid = row.view(self.ranks, self.own)
        for part, place, start in zip(self.parts, self.places, self.starts):
            yield grid[:, place : place + part], whole[start : start + self.ranks * part].view(self.ranks, part)


def sorted_by(kind, parameters):
    """Lists of parameters of which ``kind`` says the same."""
    lists = {}
    for parameter in parameters:
        lists.setdefault(kind(parameter), []).append(parameter)
    return list(lists.values())


def split_by_bytes(parameters, size):
    """Lists of parameters, from the last on: each takes them until it has ``size`` bytes. One dtype in a list."""
    lists, held = [], size
    for parameter in reversed(parameters):
        if held >= size or lists[-1][0].dtype != parameter.dtype:
            lists.append([])
            held = 0
        lists[-1].append(parameter)
        held += parameter.nbytes
    return lists


def as_precise(tensor):
    """In fp32 at least; itself, if it is that already."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
