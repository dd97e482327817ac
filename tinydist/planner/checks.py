"""What the planner refuses, in words: plans that a model, a cluster or a program does not suit, or that it cannot time.

evaluate, step_time, memory, search    each checks before it counts; an answer is for a plan that ``check`` allows
"""

from ..hardware import Cluster
from ..plan import Plan
from ..rules import count, validate
from .model import Model
from .programs import Program
from .shares import layers_of

TIMED = ("fp16", "bf16")  # passes.py counts activations of 16 bits
ALIGNED = 8  # numbers of 16 bits, which tensor cores load at once


@validate(plan=Plan, model=Model, ranks=count, cluster=Cluster, program=Program)
def check(plan, model, ranks=None, cluster=None, program=None):
    """Raise ``ValueError`` if the plan does not fit the model. ``ranks``: the world size. ``cluster``: where a step
    is timed. ``program``: which is to run the plan."""
    refuse("plan", plan, model, cluster, program, ranks)


def refuse(operation, plan, model, cluster=None, program=None, ranks=None):
    for words in broken(plan, model, cluster, program, ranks):
        raise ValueError(f"{operation}: {words}")


def broken(plan, model, cluster=None, program=None, ranks=None):
    """Violated constraints, as equations."""
    if ranks not in (None, plan.ranks):
        yield f"{plan.product}, but there are {ranks}"
    experts = model.experts.total if model.experts else 0
    yield from plan.unsuited(model.layers, model.heads, model.tokens, model.kv_heads, model.inner, experts)
    yield from unknown(plan, model)
    if experts:
        yield from of_experts(plan, model)
    if cluster is not None:
        yield from out_of_place(plan, cluster, program)
    if program is not None:
        yield from program.broken(plan, model)
        if model.windowed and not program.flash:
            yield f"{program} writes attention's weights down, of all tokens: sliding windows save nothing there"
        if model.latent and not (program.fused and program.flash):
            yield f"{program}: how it runs latent attention is not known to the planner: choose Megatron-LM"
        if program.fused and not program.flash and model.head_dim % ALIGNED:
            rule = f"head_dim ({model.head_dim}) must be divisible by {ALIGNED} where attention writes its weights down"
            yield f"{rule}: matmuls of other sizes are slower, and were not measured"


def unknown(plan, model):
    """What the planner has no model of."""
    if plan.layers is not None:
        yield "layers is not supported by the planner yet"
    if plan.reduce_each is not None:
        yield "reduce_each is not supported by the planner yet"
    if plan.offload:
        yield "offload is not supported by the planner yet"
    if plan.schedule == "bfs":
        yield "bfs is not supported by the planner yet"
    if plan.sequence_parallel == "overlap":
        yield "sequence_parallel='overlap' is not supported by the planner yet"
    if model.windowed and plan.cp > 1:
        yield f"{model} has sliding windows: cp ({plan.cp}) must be 1 for the planner"
    if model.windowed and model.latent:
        yield f"{model} has latent attention, and sliding windows go with keys and values"
    if model.latent and plan.cp > 1:
        yield f"{model} has latent attention: cp ({plan.cp}) must be 1 for the planner"


def of_experts(plan, model):
    """What a mixture of experts adds."""
    first, inner, dense = layers_of(plan, model)[0], model.experts.inner, model.dense_layers
    if inner % plan.tp:
        yield f"the experts' width ({inner}) must be divisible by tp ({plan.tp})"
    if dense >= first:
        yield f"the first pipeline rank has {first} layers, and needs more than the {dense} that have no experts"


def out_of_place(plan, cluster, program):
    """What the cluster does not have."""
    if plan.ranks > cluster.size:
        yield f"{plan.product}, but the cluster has {cluster.nodes} x {cluster.devices_per_node} = {cluster.size}"
    if plan.precision not in TIMED:
        yield f"precision must be one of {', '.join(TIMED)} where a step is timed, got {plan.precision!r}"
    if program is not None and program.fp8 and "float8" not in cluster.device.peak:
        yield f"{program} with fp8=True: {cluster.device} has no fp8, only {', '.join(cluster.device.peak)}"
