"""How long a step takes, term by term.

    a block            its operators, one after another: products, memory, what is sent within the tensor group
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

from . import efficiency
from .machine import Group, Measured
from .memory import block_of, buckets
from .operators import NUMBER, Meanwhile, Memory, Operators, Sent


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
        if isinstance(each, Meanwhile):
            found["products"] += (alone := machine.seconds(each.product, group))
            both = machine.seconds if overlap else machine.in_turns
            found["sent"] += both(each, group) - alone
        else:
            kind = {Memory: "memory", Sent: "sent"}.get(type(each), "products")
            found[kind] += machine.seconds(each, group)
        found["memory"] += machine.gap
    return Pass(**found)


class Times(NamedTuple):
    """Of a microbatch: a block forward, backward, recomputed; and both ends."""

    forward: Pass
    backward: Pass
    recomputed: Pass
    first: Pass
    last: Pass

    @property
    def block(self):
        return self.forward.seconds + self.backward.seconds + self.recomputed.seconds


@lru_cache(4096)
def times(model, machine, tp, microbatch, sequence, recompute, flash, fused, overlap):
    operators = Operators(model, tp, microbatch, sequence, flash, fused)
    group = Group.along(tp, 1, machine.cluster)
    parts = [
        operators.forward(), operators.backward(), operators.recomputed(recompute),
        operators.embedding() + operators.embedding_backward(), operators.loss() + operators.loss_backward(),
    ]  # fmt: skip
    return Times(*[timed(part, machine, group, overlap) for part in parts])


@dataclass(frozen=True)
class Step:
    """Seconds of a step, by what they go to. ``flops``: of the model, without what is recomputed, of all ranks."""

    terms: dict
    flops: float
    hardware_flops: float
    peak: float  # FLOP/s of all devices

    @property
    def seconds(self):
        return sum(self.terms.values())

    @property
    def mfu(self):
        return self.flops / self.seconds / self.peak

    @property
    def hfu(self):
        return self.hardware_flops / self.seconds / self.peak


def step_time(model, plan, cluster, machine=None) -> Step:
    """``machine``: Measured(cluster), or Clock(cluster)."""
    machine = machine or Measured(cluster)
    how = plan.sequence, plan.recompute, plan.flash, plan.fused, plan.overlap
    found = times(model, machine, plan.tp, plan.microbatch, *how)
    layers, numbers, M = plan.layers(model), parameters(model, plan), plan.microbatches
    accumulated = efficiency.ACCUMULATED if plan.fused else efficiency.TORCH_ACCUMULATED
    added = machine.memory(accumulated[plan.precision])
    waiting = 2 * plan.chunks * message(model, plan, machine)
    each = [found.block * count + added * number + waiting for count, number in zip(layers, numbers)]
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
        "data parallelism": exposed(model, plan, machine, found, layers[slowest], max(numbers)),
        "tied embedding": tied(model, plan, machine),
        "optimizer": machine.memory(max(numbers) * bytes_of_step(plan)),
    }
    flops = model.flops(plan.batch)
    again = model.flops(plan.batch, plan.recompute)
    return Step(terms, flops, again, plan.ranks * cluster.device.peak_of(machine.dtype))


def bytes_of_step(plan):
    """For each parameter of a rank."""
    shards = plan.shard if plan.zero else 1
    if plan.fused:
        return efficiency.STEP[plan.precision] / shards
    return efficiency.TORCH_WHOLE + efficiency.TORCH_OWN[plan.precision] / shards


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
    across = plan.dp * plan.cp * plan.tp >= machine.cluster.devices_per_node
    gathered = 0.0 if plan.sequence else machine.collective("all-gather", x, Group.along(plan.tp, 1, machine.cluster))
    return machine.message(x / plan.tp, across) + gathered


def parameters(model, plan):
    """On each rank of a pipeline."""
    layer, table = block_of(model, plan.tp)[0], model.vocabulary * model.width / plan.tp
    ranks = [count * layer for count in plan.layers(model)]
    ranks[0] += table + model.tokens * model.width * (model.positions == "learned")
    if plan.pp > 1 or not model.tied:
        ranks[-1] += table
    ranks[-1] += model.norm_size
    return ranks


def exposed(model, plan, machine, found, layers, largest):
    """What data parallelism sends, and nothing hides."""
    if plan.dp == 1:
        return 0.0
    cluster = machine.cluster
    shards = Group.along(plan.shard, plan.tp * plan.cp, cluster)
    copies = Group.along(plan.replicate, plan.tp * plan.cp * plan.shard, cluster)
    gradients = largest * GRADIENT[plan.precision]
    reduced = machine.collective("reduce-scatter", gradients, shards)
    reduced += machine.collective("all-reduce", gradients / plan.shard, copies)
    gathered = machine.collective("all-gather", largest * NUMBER, shards)
    forward = found.forward.seconds * layers
    backward = found.block * layers - forward
    if plan.zero == 3:
        passes = [(gathered, forward), (gathered + reduced, backward)]
        return plan.microbatches * sum(max(0.0, sent - meanwhile * plan.overlap) for sent, meanwhile in passes)
    times = plan.microbatches if plan.zero == 2 else 1
    hidden = backward if plan.overlap else 0.0
    after = gathered if plan.zero else 0.0
    full = buckets(model, plan.tp, layers, True, plan.pp == 1, NUMBER)
    last = reduced * full[-1] / sum(full)  # when it is full, backward is over
    return times * max(last, reduced - hidden) + after


GRADIENT = {"fp16": 2, "bf16": 4, "fp32": 4}


def tied(model, plan, machine):
    """The first and the last stage add up the gradients of what they share."""
    if plan.pp == 1 or not model.tied:
        return 0.0
    table = model.vocabulary * model.width / plan.tp * GRADIENT[plan.precision]
    return machine.collective("all-reduce", table, Group(2, 1))
