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

from ..hardware import Cluster
from ..plan import Plan
from ..rules import validate
from . import efficiency
from .activations import ITEM
from .buckets import table
from .checks import refuse
from .machine import Group, Machine, Measured
from .microbatch import times
from .model import Model
from .overlap import ExposedCommunication, gradient_bytes
from .passes import NUMBER
from .programs import MEGATRON_LM, Program
from .shares import layers_of, on_ranks, shares_of, tokens_of


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


@validate(model=Model, plan=Plan, cluster=Cluster, program=Program, machine=Machine)
def step_time(model, plan, cluster, program=MEGATRON_LM, machine=None) -> StepTime:
    """``machine``: Measured(cluster), or Clock(cluster)."""
    refuse("step_time", plan, model, cluster, program)
    return timed_step(model, plan, cluster, program, machine_of("step_time", cluster, machine))


def machine_of(operation, cluster, machine):
    if machine is not None and machine.cluster is not cluster and machine.cluster != cluster:
        raise ValueError(
            f"{operation}: the machine is of another cluster: {machine.cluster}, and the plan's is {cluster}"
        )
    return machine or Measured(cluster)


def timed_step(model, plan, cluster, program, machine):
    """Of a plan that was checked."""
    model = on_ranks(model, plan.ep)
    how = program, machine, plan.tp, plan.microbatch, plan.sequence_parallel, plan.recompute, plan.overlap_comm
    found = times(model, *how, plan.cp, plan.context)
    layers, shares, M = layers_of(plan, model), shares_of(model, plan), plan.microbatches
    added = [machine.memory(sum(each)) for each in zip(*[bytes_of_microbatch(program, plan, *of) for of in shares])]
    waiting = 2 * plan.chunks * message(model, plan, machine)
    often, once = exposed(model, program, plan, machine, found)
    first = found.first
    if model.experts and model.dense_layers:  # which the first rank has in place of others
        dense = times(model.dense, *how, plan.cp, plan.context).block
        first = [end + model.dense_layers * (a - b) for end, a, b in zip(first, dense, found.block)]
    block, last = sum(found.block), sum(found.last)
    each = [block * count + of_gradients + waiting for count, of_gradients in zip(layers, added)]
    each = list(map(sum, zip(each, often)))
    each[0] += sum(first)
    each[-1] += last
    slowest = max(range(plan.pp), key=each.__getitem__)
    ends = [end for end, at in ((first, 0), (found.last, plan.pp - 1)) if at == slowest]
    work = [sum(kind) for kind in zip([layers[slowest] * kind for kind in found.block], *ends)]
    terms = {
        "products": M * work[0],
        "memory": M * work[1],
        "tensor group": M * work[2],
        "context group": M * work[3],
        "expert group": M * work[4],
        "waiting for the CPU": M * work[5],
        "gradients added": M * added[slowest],
        "pipeline messages": M * waiting,
        "bubble": pipeline(each, plan) - M * each[slowest],
        "data parallelism": M * often[slowest] + once + renewed(model, program, plan, machine, found),
        "tied embedding": tied(model, program, plan, machine),
        "optimizer": machine.memory(max(map(sum, zip(*[bytes_of_step(program, plan, *of) for of in shares])))),
    }
    return StepTime(terms, model.flops(plan.batch), plan.ranks * cluster.device.peak_of(machine.dtype))


def exposed(model, program, plan, machine, found):
    """Exposed data-parallel communication: per rank and microbatch; and per step, of the first rank (it ends last).

    Ranks between both ends that have as many layers are alike.
    """
    never, alike = [0.0] * plan.pp, parts_of(plan, model)
    if plan.dp * plan.cp == 1:
        return never, 0.0
    needed = {*alike} if plan.zero > 1 else alike[:1]
    seconds = {part: ExposedCommunication(model, program, plan, machine, part, found).exposed() for part in needed}
    return ([seconds[part] for part in alike], 0.0) if plan.zero > 1 else (never, seconds[alike[0]])


def parts_of(plan, model):
    """Of each rank of a pipeline: (layers, is it the first, the last)."""
    return [(count, rank == 0, rank == plan.pp - 1) for rank, count in enumerate(layers_of(plan, model))]


def bytes_of_microbatch(program, plan, numbers, shards):
    """Of parameters of each pipeline rank: gradients are added to those before; and in ZeRO 2 and 3 reduced."""
    if program.fused:
        each = efficiency.ACCUMULATED[plan.precision]
    else:
        each = efficiency.TORCH_ACCUMULATED[plan.precision]
        if plan.zero > 1:
            own = efficiency.TORCH_KEPT + efficiency.TORCH_ADDED * (1 - 1 / plan.microbatches)
            each += efficiency.TORCH_WHOLE + own / shards
    return [each * number for number in numbers]


def bytes_of_step(program, plan, numbers, shards):
    """The same, in a step."""
    if program.fused:
        each = efficiency.STEP[plan.precision] / shards
    else:
        each = efficiency.TORCH_WHOLE * (plan.zero < 2) + efficiency.TORCH_OWN[plan.precision] / shards
    return [each * number for number in numbers]


def pipeline(each, plan):
    """Makespan, of ranks that take these seconds for a microbatch."""
    M, slowest, whole = plan.microbatches, max(each), sum(each)
    paced = M * slowest + (whole - slowest) / plan.chunks
    return max(paced, whole + (M - 1) * slowest / plan.chunks) if plan.pp > M else paced


def message(model, plan, machine):
    """From a stage to the next: each tensor rank sends its part; where tokens are not cut, all gather them again."""
    if plan.pp == 1:
        return 0.0
    x = tokens_of(plan, model) * model.width * NUMBER
    across = plan.ranks // plan.pp >= machine.cluster.devices_per_node
    gathered = (
        0.0 if plan.sequence_parallel else machine.collective("all-gather", x, Group.along(plan.tp, 1, machine.cluster))
    )
    return machine.message(x / plan.tp, across) + gathered


def renewed(model, program, plan, machine, found):
    """ZeRO 1 and 2: parameters are gathered after the optimizer's step, or in the next forward."""
    if plan.zero not in (1, 2):
        return 0.0
    if plan.overlap_param_gather:
        parts = {*parts_of(plan, model)}
        return max(ExposedCommunication(model, program, plan, machine, part, found).renewed() for part in parts)
    seconds = 0.0
    for (numbers, shards), stride in zip(shares_of(model, plan), (plan.tp, plan.tp * plan.ep)):
        group = Group.along(shards, stride, machine.cluster)
        seconds += machine.collective("all-gather", max(numbers) * ITEM[plan.precision], group)
    return seconds


def tied(model, program, plan, machine):
    """The first and the last stage exchange the gradients of what they share, and add them up."""
    if plan.pp == 1 or not model.tied:
        return 0.0
    shards = 1 if program.fused else plan.shards
    nbytes = table(model, plan.tp) * gradient_bytes(program, plan) / shards
    near = plan.ranks <= machine.cluster.devices_per_node
    return machine.collective("all-reduce", nbytes, Group(2, 2 if near else 1)) + machine.memory(3 * nbytes)
