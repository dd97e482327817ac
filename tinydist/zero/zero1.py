"""ZeRO stage 1: optimizer states are sharded.

    DDP         all-reduce gradients      step on all                        16 bytes per parameter
    stage 1     reduce-scatter them       step on the shard                  4 + 12/p
                                          all-gather the parameters

An all-reduce is a reduce-scatter followed by an all-gather. After the reduce-scatter each rank has the mean gradient of
its shard, which is enough for the optimizer step on that shard. So the step moves between the two, at no extra
communication: 2 (p-1)/p of the parameters per rank. As in DDP, gradients are reduced during backward (overlap.py).

    bytes per parameter, 16 bits and Adam: 2 weight | 2 gradient | (4 master weight + 4 + 4 moments)/p
    in fp32:                               4 weight | 4 gradient | 8/p                      (the weight is its master)

and 4 bytes for each bucket: Adam's step count. Gradients are accumulated and reduced in fp32 by default, 4 bytes each,
held and sent; pass ``reduce_dtype=None`` for 2.
Source: Rajbhandari et al., ZeRO, 2019, sections 5.1 and 7.2.1.
"""

import torch
import torch.distributed as dist

from ..annotate import region
from ..checkpoint.checkpointable import Checkpointable, ReplicatedParameter
from ..rules import flag, function, rate, several, validate
from .buckets import ShardedBucket
from .initialization import broadcast_rank_0, check_same_module, materialize, trained_groups
from .overlap import ForwardGather, Reduction, a_dtype
from .sharded_step import ShardedStep
from .sharding import FlatSharding, Sharding, grouped_by, split_by_bytes


@validate(
    module=torch.nn.Module,
    optimizer_class=type[torch.optim.Optimizer],
    param_groups=several,
    group=dist.ProcessGroup,
    bucket_bytes=rate,
    replicas=dist.ProcessGroup,
    reduce_dtype=a_dtype,
    sharding=type[Sharding],
    initialize=function,
    apart=function,
    ranks_of=function,
    overlap_param_gather=flag,
)
class ZeRO1(Checkpointable):
    """Train ``module`` on all ranks of ``group``, equivalent to one process with the combined batch:

        zero = ZeRO1(module, torch.optim.AdamW, lr=1e-3)
        loss(module(x)).backward();  zero.clip_grad_norm_(1.0);  zero.step();  zero.zero_grad()

    start       broadcast rank 0's parameters and buffers
    backward    gradients are added to buckets; full ones are reduced
    step        in fp32 on the own shard; all-gather the parameters

    ``param_groups``: parameters, or groups of them with options, as optimizers take them; by default all of the
    module's. ``optimizer_class`` must be elementwise (sharding.py). Learning-rate schedules take ``zero.optimizer``,
    whose parameters are the shards. A parameter that is not used in the loss has a gradient of zeros. Buffers are
    broadcast at the start only. Each rank sees the gradients of its own shards, so a loss scaler must check for
    overflow on all ranks: ``LossScaler``, or torch's ``ShardedGradScaler``.

    ``bucket_bytes``: size of a bucket. ``replicas``: ranks with the same shard, in other groups (HSDP).
    ``reduce_dtype``: in which gradients are accumulated; None: in the parameters' own. ``sharding``: ``FlatSharding``
    or ``PerParameterSharding``. ``initialize``: initializes a layer of a module on the meta device (initialization.py).
    ``apart``: a function of a parameter; those for which it returns different values share no bucket.
    ``ranks_of``: one that returns (group, replicas) of a parameter, where ranks have different ones (experts). The norm
    is summed over ``group``.
    ``overlap_param_gather``: the all-gather overlaps with the next forward (overlap.py). Until that has used
    a parameter, it is this rank's shard: call ``finish_param_gather`` to read parameters right after a step.

    Raises ``ValueError`` if modules differ between ranks, or a group has a parameter that is not in the module.
    """

    resharded = False  # stage 3: parameters are unsharded only while they are used

    def __init__(
        self,
        module,
        optimizer_class=torch.optim.AdamW,
        param_groups=None,
        group=None,
        bucket_bytes=25 * 2**20,
        replicas=None,
        reduce_dtype=torch.float32,
        sharding=FlatSharding,
        initialize=None,
        apart=None,
        ranks_of=None,
        overlap_param_gather=False,
        **options,
    ):
        self.module, self.group, self.replicas, self.bucket_bytes = module, group, replicas, bucket_bytes
        self.apart = apart or (lambda parameter: None)
        self.ranks_of = ranks_of or (lambda parameter: (group, replicas))
        self.how = {"sharding": sharding, "reduce_dtype": reduce_dtype}
        for alike in grouped_by(self.ranks_of, module.parameters()):
            check_same_module(self.name, module, *self.ranks_of(alike[0]), set(alike))
        groups, is_meta = trained_groups(self.name, module, param_groups)
        if not is_meta:
            self._spread([*module.parameters(), *module.buffers()])
        in_buckets = [self._in_buckets(each["params"]) for each in groups]
        self.group_of = {bucket: number for number, buckets in enumerate(in_buckets) for bucket in buckets}
        self.buckets = self._as_backward_comes(self.group_of)
        self.frozen = self._in_buckets(self._frozen_and_sharded())
        if is_meta:
            materialize(self.name, module, self.all_buckets, initialize, self._spread)
        on_shards = [{**each, "params": [b.master for b in buckets]} for each, buckets in zip(groups, in_buckets)]
        self.reduction = Reduction(self.buckets, filled=self._is_full, reduced=self._is_reduced)
        self.no_sync = self.reduction.no_sync
        self.optimizer = optimizer_class(on_shards, **options)
        self.sharded_step = self._sharded_step()
        self.forward_gather = self._forward_gather() if overlap_param_gather else None
        self.gradient_factor = 1.0  # gradients are multiplied by it before the step: a loss scaler's 1 / scale
        self.steps = 0

    @property
    def name(self):
        return type(self).__name__

    def __call__(self, *inputs, **named):
        raise TypeError(f"{self.name} is not a module: call the module that was passed to it, model(x)")

    # Start.

    def _spread(self, tensors):
        for alike in grouped_by(self.ranks_of, tensors):
            broadcast_rank_0(alike, *self.ranks_of(alike[0]))

    def _in_buckets(self, parameters):
        return [self._bucket(each) for each in self._lists(parameters)]

    def _frozen_and_sharded(self):
        """Frozen parameters that are sharded, too: none in this stage."""
        return []

    def _lists(self, parameters):
        alike = grouped_by(self._kind, parameters)
        return [each for some in alike for each in split_by_bytes(some, self.bucket_bytes)]

    def _kind(self, parameter):
        """Parameters of different kinds share no bucket."""
        return self.apart(parameter), self.ranks_of(parameter)

    def _bucket(self, parameters, made=ShardedBucket):
        group, replicas = self.ranks_of(parameters[0])
        return made(parameters, group=group, replicas=replicas, resharded=self.resharded, **self.how)

    def _sharded_step(self):
        return ShardedStep(self.optimizer, self.buckets)

    def _forward_gather(self):
        gather = ForwardGather(self.module, self.buckets[::-1])
        self.reduction.ending.append(gather.finish)  # of what forward has not used
        return gather

    def _as_backward_comes(self, buckets):
        """A bucket is full when its first parameter has its gradient. The same order on all ranks."""
        order = {parameter: number for number, parameter in enumerate(self.module.parameters())}
        return sorted(buckets, key=lambda bucket: -min(order[parameter] for parameter in bucket.parameters))

    # Backward.

    def _is_full(self, bucket):
        """All its gradients are ready."""

    def _is_reduced(self, bucket):
        """Its mean is ready. All gradients stay."""

    # A step.

    @property
    def param_groups(self):
        """For a loss scaler: this rank's gradients."""
        return [{"params": self.sharded_step.with_gradients()}]

    @validate(max_norm=rate)
    @torch.no_grad()
    def clip_grad_norm_(self, max_norm):
        """Clip the global gradient norm, over all shards, to ``max_norm``. Returns the norm before clipping.

        One all-reduce of one number: the squares add up over the ranks. Padding is zero, and each parameter element is
        in one shard, so nothing counts twice.
        """
        square = self.squared_norm()
        dist.all_reduce(square, group=self.group)
        norm = square.sqrt() * self.gradient_factor
        self.clip_grads_with_norm_(max_norm, norm)
        return norm

    def clip_grads_with_norm_(self, max_norm, norm):
        """The same, of what is known to have this norm: torch.nn.utils has a function of this name and formula."""
        self.sharded_step.scale_grads((float(max_norm) / (norm + 1e-6)).clamp(max=1.0))

    def squared_norm(self):
        """This rank's summand of the squared norm, of gradients that are not unscaled yet."""
        self.reduction.check_done(self.name)
        return self.sharded_step.squared_norm()

    @torch.no_grad()
    def step(self):
        """Step on this rank's shards; then all-gather the parameters."""
        self.reduction.check_done(self.name)
        with region(f"Optimizer.step#{self.name}.step"):  # as torch names its own
            if self.gradient_factor != 1.0:
                self.sharded_step.scale_grads(self.gradient_factor)
                self.gradient_factor = 1.0
            self.sharded_step.step()
            self._after_step()
        self.steps += 1

    def _after_step(self):
        """Update the parameters from their master weights, and all-gather them: bucket by bucket, or in forward."""
        if self.forward_gather:
            self.forward_gather.start()
            return
        for bucket, before in zip([*self.buckets, None], [None, *self.buckets]):
            if bucket:
                bucket.after_step()
            if bucket and not self.resharded:
                bucket.start_gather()
            if before:
                before.finish_gather()

    def finish_param_gather(self):
        """Wait until parameters are unsharded, with ``overlap_param_gather``. A collective."""
        if self.forward_gather:
            self.forward_gather.finish()

    def zero_grad(self):
        for bucket in self.buckets:
            bucket.drop_gradients()
        self.reduction.reset()

    # Checkpoints.

    @property
    def all_buckets(self):
        return [*self.buckets, *self.frozen]

    @property
    def rows(self):
        """All parameters, in buckets or replicated."""
        inside = {parameter for bucket in self.all_buckets for parameter in bucket.parameters}
        return [
            *self.all_buckets,
            *(ReplicatedParameter(p, self.ranks_of(p)[0]) for p in self.module.parameters() if p not in inside),
        ]

    def kept(self, row):
        return self.sharded_step.kept(row) if row in self.all_buckets else ({"weight": row.shard}, {})

    @torch.no_grad()
    def restore(self, loaded):
        """``loaded``: row -> (vectors, scalars), of all rows. A collective: it gathers the weights."""
        for bucket in self.frozen:
            bucket.free()
        self.sharded_step.restore({row: kept for row, kept in loaded.items() if row in self.all_buckets})
        for row in loaded.keys() - set(self.all_buckets):
            row.load(loaded[row][0]["weight"])
        self._after_step()
        self.finish_param_gather()
