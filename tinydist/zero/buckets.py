"""A bucket: parameters that are gathered, reduced and freed together; and of each kind, what this rank has of them.

whole      [p k]   the parameters, as the model computes with them
mine       [k]     the part that this rank owns
master     [k]     the same in fp32, for the optimizer
gradients  [p k]   what backward brings, added up in ``reduce_dtype``
grad       [k]     of the mean over all ranks, this rank's part

             start_gather              gather
SHARDED  ----------------> GATHERING ----------> WHOLE
   ^                           |                   |
   '---------------------------'-------------------'    free: the memory of ``whole`` is given back
                                                        renew: it is there, but the others have new weights
"""

from enum import Enum
from functools import cached_property

import torch
import torch.distributed as dist

from .memory import own_memory, to_travel, whole_memory
from .shards import InARow, as_precise


class State(Enum):
    SHARDED = "each rank has its own part alone"
    GATHERING = "the parts of the others are on their way"
    WHOLE = "every rank has all of it"


class Bucket:
    """``parameters`` of one dtype and device. ``resharded``: it starts, and rests, without ``whole`` (stage 3).

    ``reduce_dtype``: in which gradients are added up, here and over the ranks; None: in the parameters' own. In 16
    bits, small ones are swallowed by what has been added up before.
    """

    def __init__(
        self,
        parameters,
        layout=InARow,
        group=None,
        replicas=None,
        reduce_dtype=torch.float32,
        resharded=False,
    ):
        self.parameters, self.group, self.replicas, self.resharded = parameters, group, replicas, resharded
        self.shapes = [tuple(parameter.shape) for parameter in parameters]
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.everybody = self.ranks * (dist.get_world_size(replicas) if replicas else 1)
        self.layout = layout(self.shapes, self.ranks)
        self.dtype, self.device = parameters[0].dtype, parameters[0].device
        self.counts = 1.0  # each number of it, in the norm of all: 1/c if it is on c ranks, elsewhere
        self.reduce_dtype = self.dtype if reduce_dtype is None or self.dtype is torch.float64 else reduce_dtype
        self.segments = dict(zip(parameters, self.layout.segments(self.rank)))
        self.whole = whole_memory(self, "parameters", self.dtype)
        self.nbytes = self.whole.nbytes
        self.places = dict(zip(parameters, self.layout.views(self.whole)))
        if resharded or not self.layout.in_place:
            self.mine = own_memory(self, "parameters", self.dtype)
        else:
            self.mine = self.whole.chunk(self.ranks)[self.rank]
        self.state, self.row, self.arriving = State.WHOLE, None, None
        self.drop_gradients()
        for parameter in parameters:
            self.fill(parameter, parameter)
        self.show()
        if resharded:
            self.free()

    @cached_property
    def master(self):
        """Made when an optimizer asks for it: frozen parameters need none. Of fp32, the same memory."""
        if as_precise(self.mine) is self.mine:
            return self.mine
        return own_memory(self, "optimizer states", torch.float32).copy_(self.mine)

    # Parameters.

    @torch.no_grad()
    def fill(self, parameter, values):
        """It gets these, of which all ranks have the same."""
        if self.state is State.WHOLE:
            values = self.places[parameter].copy_(values)
        start, place, size = self.segments[parameter]
        self.mine[place : place + size] = values.reshape(-1)[start : start + size]

    def show(self):
        """Each parameter is its place in ``whole``, or the part of it that this rank owns."""
        for parameter, place in self.places.items():
            parameter.data = place if self.state is State.WHOLE else self._shard_of(parameter)

    def _shard_of(self, parameter):
        _, place, size = self.segments[parameter]
        return self.mine[place : place + size].view(self.layout.shard_shape(self.places[parameter].shape, size))

    def start_gather(self):
        if self.state is State.SHARDED:
            self.whole.untyped_storage().resize_(self.nbytes)
            self.row = to_travel(self.layout.row_for, self.whole)
            self.arriving = dist.all_gather_single(self.row, self.own_part(), group=self.group, async_op=True)
            self.state = State.GATHERING

    def gather(self):
        """To its end."""
        self.start_gather()
        self.finish_gather()

    def finish_gather(self):
        if self.state is State.GATHERING:
            self._arrive()
            self.layout.by_parameter(self.row, self.whole)
            self.row, self.state = None, State.WHOLE
            self.show()

    def fetch(self):
        """From where it is (offload.py), the own part that will be gathered soon."""

    def own_part(self):
        """What this rank has for the others."""
        return self.mine

    def _arrive(self):
        self.arriving.wait()
        self.arriving = None

    def free(self):
        """Tensors that autograd has saved are views of this memory: they have data again after the next gather."""
        if self.state is not State.SHARDED:
            if self.state is State.GATHERING:
                self._arrive()
            self.row, self.state = None, State.SHARDED
            self.whole.untyped_storage().resize_(0)
            self.show()

    def renew(self):
        """After a step. Who has ``whole`` gathers the others' parts again."""
        if self.resharded:
            self.free()
        self.round()
        if not self.resharded:
            self.state = State.SHARDED
            self.start_gather()

    def round(self):
        """The own part from its master."""
        if self.master is not self.mine:
            self.mine.copy_(self.master)

    # Gradients.

    @torch.no_grad()
    def take(self, parameter):
        """Its gradient is added to ``gradients``, and ``parameter.grad`` is gone."""
        if parameter.grad is not None:
            self._make_room()
            self.gradient_of[parameter] += parameter.grad
            parameter.grad = None
        self.missing.discard(parameter)

    def _make_room(self):
        """For the gradients of one reduction."""
        if not self.pending:
            if self.gradients is not None:  # of the backward before: in stage 1 the mean is in them
                self.grad = self.own_copy(self.grad)
            self.gradients = whole_memory(self, "gradients", self.reduce_dtype)
            self.gradient_of = dict(zip(self.parameters, self.layout.views(self.gradients)))
            self.pending = True

    def own_copy(self, grad):
        return own_memory(self, "gradients", grad.dtype).copy_(grad)

    @torch.no_grad()
    def reduction(self):
        """The mean over all ranks, in parts: whoever calls ``next`` lets the next one begin, and goes on meanwhile."""
        self._make_room()
        self.pending = False
        row = to_travel(self.layout.by_rank, self.gradients)
        row /= self.everybody  # before the sum, which else might overflow where the mean does not
        mean = row.chunk(self.ranks)[self.rank]  # in its place
        if not self.layout.in_place:
            mean = self.own_copy(mean)
        yield from _until_done(dist.reduce_scatter_single(mean, row, group=self.group, async_op=True))
        if self.replicas:
            yield from _until_done(dist.all_reduce(mean, group=self.replicas, async_op=True))
        self.add(mean)

    def add(self, mean):
        self.grad = mean if self.grad is None else mean.add_(self.grad)

    def drop_gradients(self):
        self.grad = self.gradients = self.gradient_of = None
        self.pending, self.missing = False, set(self.parameters)
        for parameter in self.parameters:
            parameter.grad = None

    # What is saved and loaded (checkpoint.py).

    @property
    def saved(self):
        """What this rank saves of each parameter: all that it owns."""
        return self.segments

    def gathered(self, vector):
        """Of a vector [k] of which each rank has its part: all of it, as the parameters are shaped."""
        row = vector.new_empty(self.ranks * vector.numel())
        dist.all_gather_single(row, vector.detach(), group=self.group)
        whole = self.layout.row_for(row)
        self.layout.by_parameter(row, whole)
        return [view.clone() for view in self.layout.views(whole)]


def _until_done(work):
    yield
    work.wait()
