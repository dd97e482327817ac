"""Stage 1: every rank keeps the optimizer's states of its own shard alone.

    DDP         all-reduce gradients      step on all                        16 bytes a parameter
    stage 1     reduce-scatter them       step on the shard                  4 + 12/p
                                          all-gather the parameters

An all-reduce is a reduce-scatter and an all-gather. Between the two, each rank has the mean gradient of its shard: all
that it needs to step there. So the step moves in between, and costs no byte more: 2 (p-1)/p of the parameters a rank.

    bytes a parameter, 16 bits and Adam:   2 weight | 2 gradient | (4 master weight + 4 + 4 moments)/p
    in fp32:                               4 weight | 4 gradient | 8/p                      (the weight is its master)

and 4 bytes for each row, where Adam counts its steps. Source: Rajbhandari et al., ZeRO, 2019, sections 5.1 and 7.2.1.
"""

from contextlib import contextmanager

import torch
import torch.distributed as dist

from ..collectives.agreement import broadcast_all, check_same_parameters
from ..rules import each_of, must, rate, several, takes
from ..simulator.names import region
from .shards import FlatParameters, as_precise, split_by_bytes
from .whole import Replicated

MIB = 2**20
UNSCALED = 1.0


@takes(
    module=torch.nn.Module, optimizer_class=type[torch.optim.Optimizer], param_groups=several, group=dist.ProcessGroup
)
class OptimizerStates:
    """Trains ``module`` on all ranks of ``group`` as one process would on all their batches:

        zero = OptimizerStates(module, torch.optim.AdamW, lr=1e-3)
        loss(module(x)).backward();  zero.clip_grad_norm_(1.0);  zero.step();  zero.zero_grad()

    start       all take rank 0's parameters and buffers
    backward    as without it: gradients are in ``parameter.grad``
    step        reduce-scatter them; step in fp32 on the own shard; all-gather the parameters

    ``param_groups``: parameters, or groups of them with options, as optimizers take them; by default all of the
    module's. ``optimizer_class`` must treat each number by itself (shards.py). Schedules of the learning rate take
    ``zero.optimizer``, whose parameters are the shards. A parameter that takes no part in the loss has a gradient of
    zeros. Buffers are not synchronized after the start. ``bucket_bytes``: how much travels together.

    Raises ``ValueError`` if the ranks bring different modules, or a group has a parameter that the module has not.
    """

    flat_parameters = FlatParameters

    def __init__(
        self,
        module,
        optimizer_class=torch.optim.AdamW,
        param_groups=None,
        group=None,
        bucket_bytes=25 * MIB,
        **options,
    ):
        if not rate(bucket_bytes):
            raise ValueError(f"{self.name}: buckets must have more than 0 bytes, got {bucket_bytes}")
        self.module, self.group, self.bucket_bytes = module, group, bucket_bytes
        check_same_parameters(self.name, module, group)
        broadcast_all([*module.parameters(), *module.buffers()], group=group)
        groups = trained_groups(self.name, module, param_groups)
        self.group_of, on_shards = {}, []  # flat -> number of its parameter group
        for number, each in enumerate(groups):
            flats = [self.flat_parameters(row, group) for row in self._rows(each["params"])]
            on_shards.append({**each, "params": [flat.master for flat in flats]})
            self.group_of |= dict.fromkeys(flats, number)
        self.flats = list(self.group_of)
        self._sort_as_backward_comes()
        self.optimizer = optimizer_class(on_shards, **options)
        self.gradient_factor = UNSCALED  # what gradients are multiplied by once they are fp32
        self.collected, self.synchronize, self.steps = False, True, 0

    @property
    def name(self):
        return type(self).__name__

    def __call__(self, *inputs, **named):
        raise TypeError(f"{self.name} steps, and is no module: call the module that it was given, model(x)")

    # Start.

    def _rows(self, parameters):
        return split_by_bytes(parameters, self.bucket_bytes)

    def _sort_as_backward_comes(self):
        """A row is full when the earliest of its parameters has its gradient. The same order on all ranks."""
        order = {parameter: number for number, parameter in enumerate(self.module.parameters())}
        self.flats.sort(key=lambda flat: -min(order[parameter] for parameter in flat.parameters))

    # Backward.

    @contextmanager
    def no_sync(self):
        """Backward in here sends nothing (nor does it outside, in this stage): for all but a step's last microbatch."""
        before, self.synchronize = self.synchronize, False
        try:
            yield
        finally:
            self.synchronize = before

    # A step.

    def _collect(self):
        """The mean gradients of the own shard. Here they are still in ``parameter.grad``."""
        for flat in self.flats:
            for parameter in flat.parameters:
                flat.take(parameter)
            flat.reduce()()

    def _collect_once(self):
        if not self.collected or any(p.grad is not None for flat in self.flats for p in flat.parameters):
            self._collect()
            self.collected = True

    @takes(max_norm=rate)
    @torch.no_grad()
    def clip_grad_norm_(self, max_norm):
        """Let the gradients have a norm of ``max_norm`` at most, those of all shards together. The norm before.

        One all-reduce of one number: the squares add up over the ranks. Padding is zero, and each number of the model
        is in one shard, so nothing counts twice.
        """
        self._collect_once()
        square = self._square_of_the_own_norm()
        dist.all_reduce(square, group=self.group)
        norm = square.sqrt() * self.gradient_factor
        self.gradient_factor = self.gradient_factor * (float(max_norm) / (norm + 1e-6)).clamp(max=1.0)  # as torch
        return norm

    @property
    def param_groups(self):
        """The shards with their gradients, for who looks at gradients, as a loss scaler does."""
        self._collect_once()
        return [{"params": self.flats}]

    def _square_of_the_own_norm(self):
        return torch.stack([torch.linalg.vector_norm(as_precise(flat.grad)) for flat in self.flats]).square().sum()

    @torch.no_grad()
    def step(self):
        """One row after another, so that only one has its gradient in fp32."""
        with region(f"Optimizer.step#{self.name}.step"):  # as torch names its own
            self._collect_once()
            ends = []
            for flat in self.flats:
                self._step_on(flat)
                ends.append(self._publish(flat))
            for end, flat in zip(ends, self.flats):
                end()
                flat.remember_purpose()
            self._has_stepped()

    def _has_stepped(self):
        self.gradient_factor, self.collected = UNSCALED, False
        self.steps += 1

    def _step_on(self, flat):
        gradient = as_precise(flat.grad)
        flat.master.grad = gradient if self.gradient_factor is UNSCALED else gradient * self.gradient_factor
        self.optimizer.step()  # on this shard alone, as no other has a gradient
        flat.master.grad = None

    def _publish(self, flat):
        """All ranks get the new weights: starts it, and returns what ends it."""
        flat.round()
        return flat.gather()

    def zero_grad(self):
        for flat in self.flats:
            flat.drop_gradients()
        self.collected = False

    # What is saved and loaded (checkpoint.py).

    @property
    def all_flats(self):
        """In this stage, frozen parameters are in no flat row."""
        return self.flats

    @property
    def rows(self):
        """All parameters, in rows or whole."""
        inside = {parameter for flat in self.all_flats for parameter in flat.parameters}
        return [*self.all_flats, *(Replicated(p, self.group) for p in self.module.parameters() if p not in inside)]

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
                self._publish(row)()
            else:
                row.fill(vectors["weight"])

    def _restore(self, flat, vectors, scalars):
        flat.master.copy_(vectors["weight"])
        self.optimizer.state[flat.master] = states_of(vectors, flat.master.dtype) | scalars


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
