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

from ..rules import each_of, function, must, rate, several, stated, takes
from ..simulator.names import region
from .buckets import Bucket
from .reduction import Reduction
from .shards import InARow, Layout, as_precise, split_by_bytes
from .start import all_alike, as_rank_0, bring_to_life, in_name_only
from .whole import Replicated

MIB = 2**20

a_dtype = stated(
    "a dtype of floating-point numbers, or None",
    lambda given: given is None or (isinstance(given, torch.dtype) and given.is_floating_point),
)


@takes(
    module=torch.nn.Module,
    optimizer_class=type[torch.optim.Optimizer],
    param_groups=several,
    group=dist.ProcessGroup,
    replicas=dist.ProcessGroup,
    reduce_dtype=a_dtype,
    layout=type[Layout],
    initialize=function,
)
class OptimizerStates:
    """Trains ``module`` on all ranks of ``group`` as one process would on all their batches:

        zero = OptimizerStates(module, torch.optim.AdamW, lr=1e-3)
        loss(module(x)).backward();  zero.clip_grad_norm_(1.0);  zero.step();  zero.zero_grad()

    start       all take rank 0's parameters and buffers
    backward    gradients move to buckets as they come; full ones are reduced
    step        in fp32 on the own shard; all-gather the parameters

    ``param_groups``: parameters, or groups of them with options, as optimizers take them; by default all of the
    module's. ``optimizer_class`` must treat each number by itself (shards.py). Schedules of the learning rate take
    ``zero.optimizer``, whose parameters are the shards. A parameter that takes no part in the loss has a gradient of
    zeros. Buffers are not synchronized after the start.

    ``bucket_bytes``: how much travels together. ``replicas``: ranks that have the same shard, in other groups (HSDP).
    ``reduce_dtype``: in which gradients are added up; None: in the parameters' own. ``layout``: ``InARow`` or
    ``ByParameter``. ``initialize``: gives a layer its numbers, if the module comes from the meta device (start.py).

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
        **options,
    ):
        if not rate(bucket_bytes):
            raise ValueError(f"{self.name}: buckets must have more than 0 bytes, got {bucket_bytes}")
        self.module, self.group, self.replicas, self.bucket_bytes = module, group, replicas, bucket_bytes
        self.how = {"layout": layout, "group": group, "replicas": replicas, "reduce_dtype": reduce_dtype}
        all_alike(self.name, module, group, replicas)
        spread = partial(as_rank_0, group=group, replicas=replicas)
        given, new = trained_groups(self.name, module, param_groups), in_name_only(self.name, module)
        groups = [{**each, "params": [new.get(p, p) for p in each["params"]]} for each in given]
        if not new:
            spread([*module.parameters(), *module.buffers()])
        in_buckets = [self._in_buckets(each["params"]) for each in groups]
        self.group_of = {bucket: number for number, buckets in enumerate(in_buckets) for bucket in buckets}
        self.buckets = self._as_backward_comes(self.group_of)
        self.frozen = self._in_buckets(self._frozen_and_sharded())
        if new:
            bring_to_life(self.name, module, self.all_buckets, initialize, spread)
        on_shards = [{**each, "params": [b.master for b in buckets]} for each, buckets in zip(groups, in_buckets)]
        self.reduction = Reduction(self.buckets, filled=self._is_full, reduced=self._is_reduced)
        self.no_sync = self.reduction.no_sync
        self.optimizer = optimizer_class(on_shards, **options)
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
        return split_by_bytes(parameters, self.bucket_bytes)

    def _bucket(self, parameters):
        return Bucket(parameters, resharded=self.resharded, **self.how)

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
        """Tensors that have the gradients of this rank's shards, for who looks at those, as a loss scaler does."""
        return [{"params": [with_gradient(bucket.grad) for bucket in self.buckets if bucket.grad is not None]}]

    @takes(max_norm=rate)
    @torch.no_grad()
    def clip_grad_norm_(self, max_norm):
        """Let the gradients have a norm of ``max_norm`` at most, those of all shards together. The norm before.

        One all-reduce of one number: the squares add up over the ranks. Padding is zero, and each number of the model
        is in one shard, so nothing counts twice.
        """
        self._check_gradients()
        square = self._square_of_the_own_norm()
        dist.all_reduce(square, group=self.group)
        norm = square.sqrt() * self.gradient_factor
        self._multiply((float(max_norm) / (norm + 1e-6)).clamp(max=1.0))  # as torch
        return norm

    def _square_of_the_own_norm(self):
        norms = [torch.linalg.vector_norm(as_precise(bucket.grad)) for bucket in self.buckets]
        return torch.stack(norms).square().sum()

    def _multiply(self, factor):
        torch._foreach_mul_([bucket.grad for bucket in self.buckets], factor)

    def _check_gradients(self):
        if any(bucket.grad is None or bucket.pending for bucket in self.buckets):
            raise RuntimeError(
                f"{self.name}: gradients to step on are missing. Call backward first, and the last one before a step "
                f"outside of no_sync (rank {dist.get_rank()})"
            )

    @torch.no_grad()
    def step(self):
        """Once, on all shards; then the new parameters are gathered."""
        self._check_gradients()
        with region(f"Optimizer.step#{self.name}.step"):  # as torch names its own
            self._step_on(self.buckets)
            for bucket in self.buckets:
                bucket.renew()
            for bucket in self.buckets:
                if not bucket.resharded:
                    bucket.gather()
        self.gradient_factor = 1.0
        self.steps += 1

    def _step_on(self, buckets):
        if self.gradient_factor != 1.0:
            self._multiply(self.gradient_factor)
            self.gradient_factor = 1.0
        for bucket in buckets:
            bucket.master.grad = as_precise(bucket.grad)
        self.optimizer.step()
        for bucket in buckets:
            bucket.master.grad = None

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

    @property
    def optimizer_name(self):
        return type(self.optimizer).__name__

    def kept(self, row):
        """What is kept of a row: this rank's part of the master weight and of the optimizer's states; and numbers."""
        if row not in self.group_of:  # frozen
            return {"weight": row.mine}, {}
        state = self.optimizer.state.get(row.master, {})
        vectors = {key: value for key, value in state.items() if value.shape == row.master.shape}
        return {"weight": row.master} | vectors, {key: state[key] for key in state.keys() - vectors.keys()}

    @torch.no_grad()
    def restore(self, loaded):
        """The reverse, of all rows: row -> (vectors, scalars). All ranks call it, and get the weights."""
        for row, (vectors, scalars) in loaded.items():
            if row in self.group_of:
                self._restore(row, vectors, scalars)
                row.renew()
            else:
                row.load(vectors["weight"])
        for bucket in self.buckets:
            if not bucket.resharded:
                bucket.gather()

    def _restore(self, bucket, vectors, scalars):
        bucket.master.copy_(vectors["weight"])
        self.optimizer.state[bucket.master] = states_of(vectors, bucket.master.dtype) | scalars


def with_gradient(grad):
    tensor = grad.detach()
    tensor.grad = grad
    return tensor


def states_of(vectors, dtype):
    """The optimizer's: all but the weight. In its dtype, as torch's ``load_state_dict`` has it."""
    states = {key: vector for key, vector in vectors.items() if key != "weight"}
    return {key: vector.to(dtype) if vector.is_floating_point() else vector for key, vector in states.items()}


def trained_groups(name, module, param_groups=None):
    """Parameter groups as optimizers take them, with a list of what is trained in each."""
    given = list(module.parameters() if param_groups is None else param_groups)
    must(name, "param_groups", each_of(torch.Tensor | dict, 0), given)
    groups = given if given and isinstance(given[0], dict) else [{"params": given}]
    groups = [{**each, "params": [p for p in each["params"] if p.requires_grad]} for each in groups]
    known = set(module.parameters())
    foreign = [p for each in groups for p in each["params"] if p not in known]
    if foreign:
        shapes = ", ".join(str(list(p.shape)) for p in foreign)
        raise ValueError(f"{name}: param_groups has parameters that are none of the module's: {shapes}")
    if not any(each["params"] for each in groups):
        raise ValueError(f"{name}: there is nothing to train, no parameter of the module requires a gradient")
    return groups
