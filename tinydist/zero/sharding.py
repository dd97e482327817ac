"""Sharding layouts: flat parameter (FSDP1) or per-parameter sharding (FSDP2), with one interface.

    FlatSharding            parameters concatenated, and split into p equal shards (DeepSpeed, FSDP's FlatParameter)

                  [   w1   ][ b1 ][   w2   ][ b2 ]00          padded to a multiple of p: at most p-1 elements
                  [   0   |    1    |   2   |  3  ]           sent in place: nothing is copied

    PerParameterSharding    each parameter split along dim 0, as by torch.chunk (fully_shard, FSDP2)

                  w1 [ 0 | 1 | 2 | 3 ]   b1 [ 0 | 1 | 2 | 3 ]      each padded to p equal parts: up to (p-1)/p of it
                  [w1 b1|w1 b1|w1 b1|w1 b1]                        sent by rank: copied in and out, one more buffer

A flat shard may begin in the middle of a matrix; a per-parameter shard has rows of it, which can be saved and
quantized. Either way optimizers must be elementwise, as SGD and Adam are: those that use whole matrices (LAMB, Muon,
Adafactor) see shards. Padding is zero.
Sources: Rajbhandari et al., ZeRO, 2019, section 5; Zhao et al., PyTorch FSDP, 2023, section 3.2; torch's fully_shard.
"""

from itertools import accumulate
from math import prod

import torch

from ..checkpoint.shard_overlap import Segment


class Sharding:
    """A sharding layout of parameters with these shapes over p ranks. Each rank owns ``own`` elements, with padding.

    ``whole`` [p own] has all parameters, one after another from their ``starts``; the row that is sent has the same
    elements by rank. ``in_place``: are the two the same?
    """

    in_place = False

    def __init__(self, shapes, ranks):
        self.shapes, self.ranks, self.sizes = shapes, ranks, [prod(shape) for shape in shapes]

    @property
    def padding(self):
        return self.ranks * self.own - sum(self.sizes)

    def views(self, whole):
        """Each parameter as a view of ``whole``."""
        spans = zip(self.starts, self.sizes, self.shapes)
        return [whole[start : start + size].view(shape) for start, size, shape in spans]


class FlatSharding(Sharding):
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

    def receive_buffer(self, whole):
        """For an all-gather whose result belongs into ``whole``."""
        return whole

    def unpack(self, row, whole):
        """From the gathered row to ``whole``: the same memory."""

    def pack(self, whole):
        """``whole`` by rank, to be sent."""
        return whole


class PerParameterSharding(Sharding):
    def __init__(self, shapes, ranks):
        super().__init__(shapes, ranks)
        rows = [(shape or (1,))[0] for shape in shapes]
        self.parts = [-(-n // ranks) * prod(shape[1:]) for n, shape in zip(rows, shapes)]  # elements, of each rank
        *self.places, self.own = accumulate(self.parts, initial=0)
        self.starts = [ranks * place for place in self.places]

    def segments(self, rank):
        for part, place, size in zip(self.parts, self.places, self.sizes):
            start = min(rank * part, size)
            yield Segment(start, place, min(part, size - start))

    def shard_shape(self, shape, size):
        return (size // max(prod(shape[1:]), 1), *shape[1:])

    def receive_buffer(self, whole):
        return torch.empty_like(whole)

    def unpack(self, row, whole):
        for theirs, ours in self._parts(row, whole):
            ours.copy_(theirs)

    def pack(self, whole):
        row = torch.empty_like(whole)
        for theirs, ours in self._parts(row, whole):
            theirs.copy_(ours)
        return row

    def _parts(self, row, whole):
        """Of each parameter, [p, part] in the row and in ``whole``."""
        grid = row.view(self.ranks, self.own)
        for part, place, start in zip(self.parts, self.places, self.starts):
            yield grid[:, place : place + part], whole[start : start + self.ranks * part].view(self.ranks, part)


def grouped_by(kind, parameters):
    """Lists of parameters with the same ``kind(parameter)``."""
    lists = {}
    for parameter in parameters:
        lists.setdefault(kind(parameter), []).append(parameter)
    return list(lists.values())


def split_by_bytes(parameters, size):
    """Lists of parameters, in reverse, each filled until it has ``size`` bytes. One dtype in a list."""
    lists, held = [], size
    for parameter in reversed(parameters):
        if held >= size or lists[-1][0].dtype != parameter.dtype:
            lists.append([])
            held = 0
        lists[-1].append(parameter)
        held += parameter.nbytes
    return lists


def at_least_fp32(tensor):
    """In fp32, or as it is if that is more precise."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
