"""Step time, term by term.

    a block            its operators, one after another: matmuls, memory, communication of the tensor group
    a rank             its blocks, the ends of the model, gradients added to those of the microbatches before
    a pipeline         M T + (P-1) T/v for ranks that take T for a microbatch; the slowest sets the pace, and the others
                       are passed through once: M max(T) + (sum(T) - max(T))/v. Messages are waited for in every pass
    data parallelism   what is not hidden behind backward (and, of ZeRO 3, forward)
    the end            the optimizer's step, and what two stages that share a weight tell each other

The pipeline's formula is that of chapter 08's schedules (pipeline_parallel/schedules.py); tests hold it to that.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ..hardware import Cluster
from ..plan import Plan
from ..rules import validate
from . import efficiency
from .activations import ITEM
from .buckets import block_of, table
from .machine import Group, Machine, Measured
from .model import Model, layers_of
from .operators import NUMBER, CollectiveOp, MemoryOp, Operators, OverlapOp
from .overlap import GRADIENT, ExposedCommunication


@dataclass(frozen=True)
class StepTime:
    """Time of a step, by term. ``flops``: model FLOPs of all ranks, without recomputation."""

    terms: dict
    flops: float
    peak: float  # FLOP/s of all devices

    @property
    def seconds(self):
        return sum(self.terms.values())

    @property
    def mfu(self):
        return self.flops / self.seconds / self.peak


@validate(model=Model, plan=Plan, cluster=Cluster, machine=Machine)
def step_time(model, plan, cluster, machine=None) -> StepTime:
    """``machine``: Measured(cluster), or Clock(cluster)."""
    machine = machine or Measured(cluster)
    if model.fused and plan.precision not in efficiency.STEP:
        known = ", ".join(efficiency.STEP)
        raise ValueError(f"step_time: precision must be one of {known} for fused kernels, got {plan.precision!r}")
    how = plan.sequence_parallel, plan.recompute, plan.overlap_comm
    found = times(model, machine, plan.tp, plan.microbatch, *how)
    layers, numbers, M = layers_of(plan, model), parameters(model, plan), plan.microbatches
    added = machine.memory(bytes_of_microbatch(model, plan))
    waiting = 2 * plan.chunks * message(model, plan, machine)
    often, once = exposed(model, plan, machine, found)
    each = [found.block * count + added * number + waiting for count, number in zip(layers, numbers)]
    each = list(map(sum, zip(each, often)))
    each[0] += found.first.seconds
    each[-1] += found.last.seconds
    slowest = max(range(plan.pp), key=each.__getitem__)
    parts = [found.forward, found.backward, found.recomputed]
    work = [sum(kind) * layers[slowest] for kind in zip(*parts)]
    for end, at in ((found.first, 0), (found.last, plan.pp - 1)):
        work = [a + b * (at == slowest) for a, b in zip(work, end)]
    terms = {
        "products": M * work[0],
        "memory": M * work[1],
        "tensor group": M * work[2],
        "gradients added": M * added * numbers[slowest],
        "pipeline messages": M * waiting,
        "bubble": pipeline(each, plan) - M * each[slowest],
        "data parallelism": M * often[slowest] + once + renewed(plan, machine, max(numbers)),
        "tied embedding": tied(model, plan, machine),
        "optimizer": machine.memory(max(numbers) * bytes_of_step(model, plan)),
    }
    return StepTime(terms, model.flops(plan.batch), plan.ranks * cluster.device.peak_of(machine.dtype))


def exposed(model, plan, machine, found):
    """Exposed data-parallel communication: per rank and microbatch; and per step, of the first rank (it ends last).

    Ranks between both ends that have as many layers are alike.
    """
    never = [0.0] * plan.pp
    if plan.dp == 1:
        return never, 0.0
    alike = [(count, rank == 0, rank == plan.pp - 1) for rank, count in enumerate(layers_of(plan, model))]
    needed = {*alike} if plan.zero > 1 else alike[:1]
    seconds = {part: ExposedCommunication(model, plan, machine, part, found).exposed() for part in needed}
    return ([seconds[part] for part in alike], 0.0) if plan.zero > 1 else (never, seconds[alike[0]])


def bytes_of_microbatch(model, plan):
    """For each parameter of a rank: its gradient is added to those before; and in ZeRO 2 and 3 reduced."""
    if model.fused:
        return efficiency.ACCUMULATED[plan.precision]
    added = efficiency.TORCH_ACCUMULATED[plan.precision]
    if plan.zero < 2:
        return added
    own = efficiency.TORCH_KEPT + efficiency.TORCH_ADDED * (1 - 1 / plan.microbatches)
    return added + efficiency.TORCH_WHOLE + own / plan.shard


def bytes_of_step(model, plan):
    """The same, in a step."""
    shards = plan.shard if plan.zero else 1
    if model.fused:
        return efficiency.STEP[plan.precision] / shards
    return efficiency.TORCH_WHOLE * (plan.zero < 2) + efficiency.TORCH_OWN[plan.precision] / shards


def pipeline(each, plan):
    """Makespan, of ranks that take these seconds for a microbatch."""
    M, slowest, whole = plan.microbatches, max(each), sum(each)
    if plan.pp > M:
        return whole + (M - 1) * slowest / plan.chunks
    return M * slowest + (whole - slowest) / plan.chunks


def message(model, plan, machine):
    """From a stage to the next: each tensor rank sends its part; where tokens are not cut, all gather them again."""
    if plan.pp == 1:
        return 0.0
    x = plan.microbatch * model.tokens * model.width * NUMBER
    across = plan.dp * plan.tp >= machine.cluster.devices_per_node
    gathered = (
        0.0 if plan.sequence_parallel else machine.collective("all-gather", x, Group.along(plan.tp, 1, machine.cluster))
    )
    return machine.message(x / plan.tp, across) + gathered


def parameters(model, plan):
    """On each rank of a pipeline."""
    layer, table = block_of(model, plan.tp)[0], model.vocabulary * model.width / plan.tp
    ranks = [count * layer for count in layers_of(plan, model)]
    ranks[0] += table + model.tokens * model.width * (model.positions == "learned")
    if plan.pp > 1 or not model.tied:
        ranks[-1] += table
    ranks[-1] += model.norm_size
    return ranks


def renewed(plan, machine, numbers):
    """ZeRO 1 and 2: after the optimizer's step parameters are gathered."""
    if plan.zero not in (1, 2):
        return 0.0
    group = Group.along(plan.shard, plan.tp, machine.cluster)
    return machine.collective("all-gather", numbers * ITEM[plan.precision], group)


def tied(model, plan, machine):
    """The first and the last stage exchange the gradients of what they share, and add them up."""
    if plan.pp == 1 or not model.tied:
        return 0.0
    shards = plan.shard if plan.zero and not model.fused else 1
    nbytes = table(model, plan.tp) * GRADIENT[plan.precision] / shards
    near = plan.ranks <= machine.cluster.devices_per_node
    return machine.collective("all-reduce", nbytes, Group(2, 2 if near else 1)) + machine.memory(3 * nbytes)


# A microbatch on one rank.


class Pass(NamedTuple):
    """Seconds."""

    products: float = 0.0
    memory: float = 0.0
    sent: float = 0.0  # and waited for

    @property
    def seconds(self):
        return sum(self)


def timed(operators, machine, group, overlap):
    """A Pass, of a list of operators."""
    found = dict.fromkeys(Pass._fields, 0.0)
    for each in operators:
        if isinstance(each, OverlapOp):
            found["products"] += (alone := machine.seconds(each.product, group))
            both = machine.seconds if overlap else machine.in_turns
            found["sent"] += both(each, group) - alone
        else:
            kind = {MemoryOp: "memory", CollectiveOp: "sent"}.get(type(each), "products")
            found[kind] += machine.seconds(each, group)
        found["memory"] += machine.gap
    return Pass(**found)


class Times(NamedTuple):
    """Of a microbatch: a block forward, backward, recomputed; and both ends, forward and backward."""

    forward: Pass
    backward: Pass
    recomputed: Pass
    embedding: Pass
    embedding_backward: Pass
    loss: Pass
    loss_backward: Pass

    @property
    def block(self):
        return self.forward.seconds + self.backward.seconds + self.recomputed.seconds

    @property
    def first(self):
        return Pass(*map(sum, zip(self.embedding, self.embedding_backward)))

    @property
    def last(self):
        return Pass(*map(sum, zip(self.loss, self.loss_backward)))


@lru_cache(4096)
def times(model, machine, tp, microbatch, sequence_parallel, recompute, overlap):
    operators = Operators(model, tp, microbatch, sequence_parallel)
    group = Group.along(tp, 1, machine.cluster)
    parts = [
        operators.forward(), operators.backward(), operators.recomputed(recompute),
        operators.embedding(), operators.embedding_backward(), operators.loss(), operators.loss_backward(),
    ]  # fmt: skip
    return Times(*[timed(part, machine, group, overlap) for part in parts])
