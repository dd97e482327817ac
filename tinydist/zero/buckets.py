"""A bucket: parameters that are gathered, reduced and freed together, and this rank's shard of them.

unsharded  [p k]   the unsharded parameters, in the compute dtype
shard      [k]     this rank's shard
master     [k]     fp32 master weights of the shard, for the optimizer
gradients  [p k]   accumulated in ``reduce_dtype``
grad       [k]     this rank's shard of the mean over all ranks

             start_gather              gather
SHARDED  ----------------> GATHERING ----------> UNSHARDED
   ^                           |                   |
   '---------------------------'-------------------'    free: the memory of ``unsharded`` is released
                                                        after_step: ``unsharded`` is stale: ranks have new weights
"""

from enum import Enum
from functools import cached_property

import torch
import torch.distributed as dist

from .memory import comm_buffer, shard_buffer, unsharded_buffer
from .sharding import FlatSharding, at_least_fp32


class BucketState(Enum):
    SHARDED = "each rank has its own shard only"
    GATHERING = "the all-gather is in progress"
    UNSHARDED = "every rank has all shards"


class ShardedBucket:
    """``parameters`` of one dtype and device. ``resharded``: ``unsharded`` is freed between uses (stage 3).

    ``reduce_dtype``: the dtype in which gradients are accumulated and reduced; None: that of the parameters. In 16
    bits, small gradients are lost when they are added to large sums.
    """

    def __init__(
        self,
        parameters,
        sharding=FlatSharding,
        group=None,
        replicas=None,
        reduce_dtype=torch.float32,
        resharded=False,
    ):
        self.parameters, self.group, self.replicas, self.resharded = parameters, group, replicas, resharded
        self.shapes = [tuple(parameter.shape) for parameter in parameters]
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.world = self.ranks * (dist.get_world_size(replicas) if replicas else 1)
        self.sharding = sharding(self.shapes, self.ranks)
        self.dtype, self.device = parameters[0].dtype, parameters[0].device
        self.norm_weight = 1.0  # of each number in the global norm: 1/c if c ranks hold it
        self.reduce_dtype = self.dtype if reduce_dtype is None or self.dtype is torch.float64 else reduce_dtype
        self.segments = dict(zip(parameters, self.sharding.segments(self.rank)))
        self.unsharded = unsharded_buffer(self, "parameters", self.dtype)
        self.nbytes = self.unsharded.nbytes
        self.places = dict(zip(parameters, self.sharding.views(self.unsharded)))
        if resharded or not self.sharding.in_place:
            self.shard = shard_buffer(self, "parameters", self.dtype)
        else:
            self.shard = self.unsharded.chunk(self.ranks)[self.rank]
        self.state, self.row, self.arriving = BucketState.UNSHARDED, None, None
        self.drop_gradients()
        for parameter in parameters:
            self.fill(parameter, parameter)
        self.bind_views()
        if resharded:
            self.free()

    @cached_property
    def master(self):
        """fp32 master weights, created lazily: frozen parameters need none. For fp32 parameters, the shard itself."""
        if at_least_fp32(self.shard) is self.shard:
            return self.shard
        return shard_buffer(self, "optimizer states", torch.float32).copy_(self.shard)

    # Parameters.

    @torch.no_grad()
    def fill(self, parameter, values):
        """Set its values, which are the same on all ranks."""
        if self.state is BucketState.UNSHARDED:
            values = self.places[parameter].copy_(values)
        start, place, size = self.segments[parameter]
        self.shard[place : place + size] = values.reshape(-1)[start : start + size]

    def bind_views(self):
        """Each parameter is a view of ``unsharded``, or of this rank's shard."""
        for parameter, place in self.places.items():
            parameter.data = place if self.state is BucketState.UNSHARDED else self._shard_of(parameter)

    def _shard_of(self, parameter):
        _, place, size = self.segments[parameter]
        return self.shard[place : place + size].view(self.sharding.shard_shape(self.places[parameter].shape, size))

    def start_gather(self):
        if self.state is BucketState.SHARDED:
            self.unsharded.untyped_storage().resize_(self.nbytes)
            self.row = comm_buffer(self.sharding.receive_buffer, self.unsharded)
            self.arriving = dist.all_gather_single(self.row, self.own_part(), group=self.group, async_op=True)
            self.state = BucketState.GATHERING

    def gather(self):
        """Start, and wait."""
        self.start_gather()
        self.finish_gather()

    def finish_gather(self):
        if self.state is BucketState.GATHERING:
            self._arrive()
            self.sharding.unpack(self.row, self.unsharded)
            self.row, self.state = None, BucketState.UNSHARDED
            self.bind_views()

    def fetch(self):
        """Prefetch the shard from its offload device (offload/)."""

    def own_part(self):
        """The shard that this rank sends."""
        return self.shard

    def _arrive(self):
        self.arriving.wait()
        self.arriving = None

    def free(self):
        """Tensors saved by autograd are views of this memory: the next gather fills them again."""
        if self.state is not BucketState.SHARDED:
            if self.state is BucketState.GATHERING:
                self._arrive()
            self.row, self.state = None, BucketState.SHARDED
            self.unsharded.untyped_storage().resize_(0)
            self.bind_views()

    def after_step(self):
        """The shard follows its master; what was unsharded is stale."""
        if self.resharded:
            self.free()
        self.cast_from_master()
        self.state = BucketState.SHARDED

    def cast_from_master(self):
        """The shard, in the parameters' dtype, from its fp32 master."""
        if self.master is not self.shard:
            self.shard.copy_(self.master)

    # Gradients.

    @torch.no_grad()
    def accumulate_grad(self, parameter):
        """Accumulate its gradient into ``gradients`` and clear ``parameter.grad``."""
        if parameter.grad is not None:
            self._make_room()
            self.gradient_of[parameter] += parameter.grad
            parameter.grad = None
        self.missing.discard(parameter)

    def _make_room(self):
        """Allocate ``gradients`` for the next reduction."""
        if not self.pending:
            if self.gradients is not None:  # of the backward before: in stage 1 the mean is in them
                self.grad = self.own_copy(self.grad)
            self.gradients = unsharded_buffer(self, "gradients", self.reduce_dtype)
            self.gradient_of = dict(zip(self.parameters, self.sharding.views(self.gradients)))
            self.pending = True

    def own_copy(self, grad):
        return shard_buffer(self, "gradients", grad.dtype).copy_(grad)

    @torch.no_grad()
    def reduction(self):
        """Average over all ranks: each ``next`` waits for one collective and starts the following one."""
        self._make_room()
        self.pending = False
        row = comm_buffer(self.sharding.pack, self.gradients)
        row /= self.world  # before the sum, which else might overflow where the mean does not
        mean = row.chunk(self.ranks)[self.rank]  # in its place
        if not self.sharding.in_place:
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

    # Checkpoints.

    @property
    def saved(self):
        """Parameter -> the segment that this rank saves: all that it owns."""
        return self.segments

    def gathered(self, vector):
        """All-gather a sharded vector [k]; returns tensors of the parameters' shapes."""
        row = vector.new_empty(self.ranks * vector.numel())
        dist.all_gather_single(row, vector.detach(), group=self.group)
        whole = self.sharding.receive_buffer(row)
        self.sharding.unpack(row, whole)
        return [view.clone() for view in self.sharding.views(whole)]


def _until_done(work):
    yield
    work.wait()
