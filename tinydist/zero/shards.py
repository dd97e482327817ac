"""Shards: parameters in one row, padded so that it divides by the ranks, of which each owns a part.

    parameters    [   w1   ][ b1 ][   w2   ][ b2 ]            flatten: one tensor, each parameter a view of it
    the row       [   w1   ][ b1 ][   w2   ][ b2 ]00          pad to a multiple of the ranks
    rank owns     [   0   ][    1   ][   2   ][  3  ]         split: n/p each, wherever that cuts

A part may begin in the midst of a parameter. So optimizers must treat each number by itself, as SGD and Adam do: one
that looks at a whole matrix (LAMB, Muon, Adafactor) sees pieces. Padding is at most p-1 numbers a row, and is zero.
Source: Rajbhandari et al., ZeRO, 2019, section 5; FSDP's FlatParameter (Zhao et al. 2023, section 3.2).
"""

import math
from functools import cached_property
from typing import NamedTuple

import torch
import torch.distributed as dist

from ..simulator.labels import label
from ..simulator.memory import purpose
from ..simulator.names import of_thread


def flatten(tensors, ranks):
    """All in one new row, with zeros at the end until it divides by ``ranks``. One dtype and device."""
    padding = -sum(tensor.numel() for tensor in tensors) % ranks
    return torch.cat([tensor.detach().flatten() for tensor in tensors] + [tensors[0].new_zeros(padding)])


def views(row, shapes):
    """The parts of a row, each with its shape. What is left of the row is padding."""
    sizes = [math.prod(shape) for shape in shapes]
    return [part.view(shape) for part, shape in zip(row[: sum(sizes)].split(sizes), shapes)]


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


class Segment(NamedTuple):
    """A part of a parameter that this rank owns. ``size`` may be 0."""

    start: int  # in the flat parameter
    place: int  # in this rank's shard
    size: int


class FlatParameters:
    """``parameters`` as one row, ``whole`` [p k]; ``mine`` [k] is the part of it that this rank owns.

    ``master`` [k] is ``mine`` in fp32, for the optimizer: the same memory if the parameters are fp32. A gradient that
    is taken goes to a row of its own, and is gone from ``parameter.grad``; once it is reduced, ``grad`` [k] has this
    rank's part of the mean over the ranks.
    """

    def __init__(self, parameters, group=None):
        self.parameters, self.group = parameters, group
        self.shapes = [tuple(parameter.shape) for parameter in parameters]
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        with purpose("parameters"):
            self.whole = flatten(parameters, self.ranks)
        self.padding = self.whole.numel() - sum(map(math.prod, self.shapes))
        self.mine = self._own()
        self.places = {p: view for p, view in zip(parameters, views(self.whole, self.shapes))}
        self.segments = dict(zip(parameters, self._segments(self.rank)))
        self._label_whole()
        self.show_whole()
        self.grad = self.row = None
        self.missing = set(parameters)

    def _own(self):
        return self.whole.chunk(self.ranks)[self.rank]

    def _segments(self, rank):
        """What ``rank`` owns of each parameter."""
        k = self.mine.numel()
        begin, end, at = rank * k, rank * k + k, 0
        for size in map(math.prod, self.shapes):
            first, last = max(at, begin), min(at + size, end)
            yield Segment(first - at, first - begin, last - first) if first < last else Segment(0, 0, 0)
            at += size

    @cached_property
    def master(self):
        """Made when an optimizer asks for it: frozen parameters need none."""
        with purpose("optimizer states"):
            master = as_precise(self.mine)
        return master if master is self.mine else self.label_own(master)

    def _label_whole(self):
        """Each part is that of the rank which owns it, on whichever rank it is."""
        for rank, owner in enumerate(dist.get_process_group_ranks(self.group)):
            for (parameter, place), (start, _, size) in zip(self.places.items(), self._segments(rank)):
                if size:
                    label(place.view(-1)[start : start + size], parameter, shard=owner)

    def label_own(self, vector):
        """``vector`` [k] has what belongs to the own part of the row; returns it."""
        for parameter, (_, place, size) in self.segments.items():
            if size:
                label(vector[place : place + size], parameter, shard=dist.get_rank())
        return vector

    @property
    def device(self):
        return self.whole.device

    @property
    def saved(self):
        """What this rank saves of each parameter: all that it owns."""
        return self.segments

    # Parameters.

    def show_whole(self):
        """Each parameter is its part of the whole row."""
        for parameter, place in self.places.items():
            parameter.data = place

    def gather(self):
        """All-gather what all own: starts it, and returns what waits for its end."""
        return dist.all_gather_single(self.whole, self.mine, group=self.group, async_op=True).wait

    def gathered(self, vector):
        """Of a vector [k] of which each rank has its part: all of it, cut and shaped as the parameters are."""
        row = vector.new_empty(self.ranks * vector.numel())
        dist.all_gather_single(row, vector.detach(), group=self.group)
        return [view.clone() for view in views(row, self.shapes)]

    def fill(self, weight):
        self.mine.copy_(weight)

    def round(self):
        """The own part of the parameters from its master."""
        self.mine.copy_(self.master)

    # Gradients.

    @torch.no_grad()
    def take(self, parameter):
        """Its gradient is added to the row, and ``parameter.grad`` is gone."""
        if parameter.grad is not None:
            if self.row is None:
                with purpose("gradients"):
                    self.row = torch.zeros_like(self.whole)
                self.row_views = dict(zip(self.parameters, views(self.row, self.shapes)))
                for each, view in self.row_views.items():
                    label(view, each)
            self.row_views[parameter] += parameter.grad
            parameter.grad = None
        self.missing.discard(parameter)

    @torch.no_grad()
    def reduce(self):
        """Reduce-scatter the row, and let go of it: starts it, and returns what ends it."""
        with purpose("gradients"):
            row = torch.zeros_like(self.whole) if self.row is None else self.row
            mean = self.label_own(row.new_empty(self.mine.shape))
        self.row = self.row_views = None
        row /= self.ranks  # before the sum, which else might overflow where the mean does not
        work = dist.reduce_scatter_single(mean, row, group=self.group, async_op=True)

        def finish():
            work.wait()
            self.add(mean)

        return finish

    def add(self, mean):
        self.grad = mean if self.grad is None else self.grad.add_(mean)

    def drop_gradients(self):
        self.grad = self.row = self.row_views = None
        self.missing = set(self.parameters)
        for parameter in self.parameters:
            parameter.grad = None

    def remember_purpose(self):
        """Of a master weight of its own the ledger believes, after an optimizer's step, that it is a parameter."""
        ledger = of_thread.ledger
        if ledger and self.master.dtype != self.mine.dtype:
            ledger.mark(self.master, "optimizer states")
