"""Stage 1: every rank keeps the optimizer's states of its own shard alone.

    DDP         all-reduce gradients      step on all                        16 bytes a parameter
    stage 1     reduce-scatter them       step on the shard                  4 + 12/p
                                          all-gather the parameters

An all-reduce is a reduce-scatter and an all-gather. Between the two, each rank has the mean gradient of its shard: all
that it needs to step there. So the step moves in between, and costs no byte more: 2 (p-1)/p of the parameters a rank.
As in DDP, gradients are reduced while backward goes on (reduction.py).

    bytes a parameter, 16 bits and Adam:   2 weight | 2 gradient | (4 master weight + 4 + 4 moments)/p
    in fp32:                               4 weight | 4 gradient | 8/p                      (the weight is its master)

and 4 bytes for each bucket, where Adam counts its steps. Gradients are added up and reduced in fp32, unless
``reduce_dtype`` says otherwise: that is 4 bytes a gradient, held and sent, for 2.
Source: Rajbhandari et al., ZeRO, 2019, sections 5.1 and 7.2.1.
"""

from functools import partial

import torch
import torch.distributed as dist

from ..annotate import region
from ..checkpoint.trained import Trained
from ..checkpoint.whole import Replicated
from ..rules import function, rate, several, takes
from .buckets import Bucket
from .reduction import Reduction, a_dtype
from .shards import InARow, Layout, sorted_by, split_by_bytes
from .start import all_alike, as_rank_0, bring_to_life, trained_groups
from .stepper import Stepper

MIB = 2**20


@takes(
    module=torch.nn.Module,
    optimizer_class=type[torch.optim.Optimizer],
    param_groups=several,
    group=dist.ProcessGroup,
    replicas=dist.ProcessGroup,
    reduce_dtype=a_dtype,
    layout=type[Layout],
    initialize=function,
    apart=function,
)
class OptimizerStates(Trained):
    """Trains ``module`` on all ranks of ``group`` as one process would on all their batches:

        zero = OptimizerStates(module, torch.optim.AdamW, lr=1e-3)
        loss(module(x)).backward();  zero.clip_grad_norm_(1.0);  zero.step();  zero.zero_grad()

    start       all take rank 0's parameters and buffers
    backward    gradients move to buckets as they come; full ones are reduced
    step        in fp32 on the own shard; all-gather the parameters

    ``param_groups``: parameters, or groups of them with options, as optimizers take them; by default all of the
    module's. ``optimizer_class`` must treat each number by itself (shards.py). Schedules of the learning rate take
    ``zero.optimizer``, whose parameters are the shards. A parameter that takes no part in the loss has a gradient of
    zeros. Buffers are not synchronized after the start. Each rank sees the gradients of its shards alone, so a loss
    scaler must ask all: ``LossScaler``, or torch's ``ShardedGradScaler``.

    ``bucket_bytes``: how much travels together. ``replicas``: ranks that have the same shard, in other groups (HSDP).
    ``reduce_dtype``: in which gradients are added up; None: in the parameters' own. ``layout``: ``InARow`` or
    ``ByParameter``. ``initialize``: gives a layer its numbers, if the module comes from the meta device (start.py).
    ``apart``: parameters of which this function says different things share no bucket.

    Raises ``ValueError`` if the ranks bring different modules, or a group has a parameter that the module has not.
    """

    resharded = False  # are parameters whole only while they are needed?

    def __init__(
        self,
        module,
        optimizer_class=torch.optim.AdamW,
        param_groups=None,
        group=None,
        bucket_bytes=25 * MIB,
        replicas=None,
        reduce_dtype=torch.float32,
        layout=InARow,
        initialize=None,
        apart=None,
        **options,
    ):
        if not rate(bucket_bytes):
            raise ValueError(f"{self.name}: buckets must have more than 0 bytes, got {bucket_bytes}")
        self.module, self.group, self.replicas, self.bucket_bytes = module, group, replicas, bucket_bytes
        self.apart = apart or (lambda parameter: None)
        self.how = {"layout": layout, "group": group, "replicas": replicas, "reduce_dtype": reduce_dtype}
        all_alike(self.name, module, group, replicas)
        groups, is_meta = trained_groups(self.name, module, param_groups)
        if not is_meta:
            as_rank_0([*module.parameters(), *module.buffers()], group, replicas)
        in_buckets = [self._in_buckets(each["params"]) for each in groups]
        self.group_of = {bucket: number for number, buckets in enumerate(in_buckets) for bucket in buckets}
        self.buckets = self._as_backward_comes(self.group_of)
        self.frozen = self._in_buckets(self._frozen_and_sharded())
        if is_meta:
            spread = partial(as_rank_0, group=group, replicas=replicas)
            bring_to_life(self.name, module, self.all_buckets, initialize, spread)
        on_shards = [{**each, "params": [b.master for b in buckets]} for each, buckets in zip(groups, in_buckets)]
        self.reduction = Reduction(self.buckets, filled=self._is_full, reduced=self._is_reduced)
        self.no_sync = self.reduction.no_sync
        self.optimizer = optimizer_class(on_shards, **options)
        self.stepper = self._stepper()
        self.gradient_factor = 1.0  # what gradients are multiplied by before the step: a scaler's doing
        self.steps = 0

    @property
    def name(self):
        return type(self).__name__

    def __call__(self, *inputs, **named):
        raise TypeError(f"{self.name} steps, and is no module: call the module that it was given, model(x)")

    # Start.

    def _in_buckets(self, parameters):
        return [self._bucket(each) for each in self._lists(parameters)]

    def _frozen_and_sharded(self):
        """Parameters. In this stage, those that are frozen are in no bucket."""
        return []

    def _lists(self, parameters):
        alike = sorted_by(self.apart, parameters)
        return [each for some in alike for each in split_by_bytes(some, self.bucket_bytes)]

    def _bucket(self, parameters):
        return Bucket(parameters, resharded=self.resharded, **self.how)

    def _stepper(self):
        return Stepper(self.optimizer, self.buckets)

    def _as_backward_comes(self, buckets):
        """One is full when the earliest of its parameters has its gradient. The same order on all ranks."""
        order = {parameter: number for number, parameter in enumerate(self.module.parameters())}
        return sorted(buckets, key=lambda bucket: -min(order[parameter] for parameter in bucket.parameters))

    # Backward.

    def _is_full(self, bucket):
        """All its gradients have come."""

    def _is_reduced(self, bucket):
        """Its mean is there. All gradients stay."""

    # A step.

    @property
    def param_groups(self):
        """For who looks at gradients, as a loss scaler does."""
        return [{"params": self.stepper.with_gradients()}]

    @takes(max_norm=rate)
    @torch.no_grad()
    def clip_grad_norm_(self, max_norm):
        """Let the gradients have a norm of ``max_norm`` at most, those of all shards together. The norm before.

        One all-reduce of one number: the squares add up over the ranks. Padding is zero, and each number of the model
        is in one shard, so nothing counts twice.
        """
        square = self.square_of_norm()
        dist.all_reduce(square, group=self.group)
        norm = square.sqrt() * self.gradient_factor
        self.stepper.multiply((float(max_norm) / (norm + 1e-6)).clamp(max=1.0))  # as torch
        return norm

    def square_of_norm(self):
        """This rank's summand of it, of gradients as they are."""
        self.reduction.check_done(self.name)
        return self.stepper.square_of_norm()

    @torch.no_grad()
    def step(self):
        """Once, on all shards; then the new parameters are gathered."""
        self.reduction.check_done(self.name)
        with region(f"Optimizer.step#{self.name}.step"):  # as torch names its own
            if self.gradient_factor != 1.0:
                self.stepper.multiply(self.gradient_factor)
                self.gradient_factor = 1.0
            self.stepper.step()
            self._renew()
        self.steps += 1

    def _renew(self):
        """Parameters follow their masters. While one bucket is gathered, the next one begins."""
        for bucket, before in zip([*self.buckets, None], [None, *self.buckets]):
            if bucket:
                bucket.renew()
            if before:
                before.finish_gather()

    def zero_grad(self):
        for bucket in self.buckets:
            bucket.drop_gradients()
        self.reduction.reset()

    # What is saved and loaded (checkpoint.py).

    @property
    def all_buckets(self):
        return [*self.buckets, *self.frozen]

    @property
    def rows(self):
        """All parameters, in buckets or whole."""
        inside = {parameter for bucket in self.all_buckets for parameter in bucket.parameters}
        return [*self.all_buckets, *(Replicated(p, self.group) for p in self.module.parameters() if p not in inside)]

    def kept(self, row):
        return self.stepper.kept(row) if row in self.all_buckets else ({"weight": row.mine}, {})

    @torch.no_grad()
    def restore(self, loaded):
        """Of all rows: row -> (vectors, scalars). All ranks call it, and get the weights."""
        for bucket in self.frozen:
            bucket.free()
        self.stepper.restore({row: kept for row, kept in loaded.items() if row in self.all_buckets})
        for row in loaded.keys() - set(self.all_buckets):
            row.load(loaded[row][0]["weight"])
        self._renew()
