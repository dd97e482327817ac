"""Applies a parallel plan to a model: precision, tensor, context, recomputation, pipeline and data parallelism.

    start        all ranks of a pipeline have the first one's model; those of the other axes follow, as they are made
    precision    parameters in 16 bits, if the plan says so
    experts      each rank keeps its share of the experts, if there are any (experts.py)
    tensor       each rank keeps its shard of each matrix, and of the tokens between (tensor_parallel)
    context      each rank has some of the tokens of every sequence, and attends to all (context_parallel)
    recompute    activation recomputation in backward (recompute)
    pipeline     the layers are split into stages, and a rank keeps its own (pipeline_parallel)
    data         each stage is wrapped in ZeRO 0 to 3, over shards and replicas, context ranks among them (zero)

Tensor comes first, as names of layers are those of the whole model; ZeRO last, as it shards what is left. torchtitan
cuts stages first, and in each applies tensor, recomputation and ``fully_shard`` (distributed/pipeline_parallel.py).
Bytes that a rank holds, of psi parameters in 16 bits with Adam: 4 psi/(pp tp) + 12 psi/(pp tp shard) for ZeRO 1 with
gradients in 16 bits, 2 psi/(pp tp) more in fp32.
"""

import torch
import torch.distributed as dist
from torch import nn

from ..collectives.agreement import broadcast_all, check_same_parameters, numbers_of_root
from ..context_parallel import shard_attention
from ..experts import shard_experts, split
from ..pipeline_parallel import cut, layers_of
from ..pipeline_parallel.stages import gpts
from ..pipeline_parallel.tied_weights import untied
from ..plan import DTYPES, Plan
from ..precision import LossScaler
from ..recompute import recompute
from ..rules import several, shown, validate
from ..tensor_parallel import shard
from ..tensor_parallel.cuts import copies_of
from ..torch_internals import device_of_group
from ..zero import ZeRO1, ZeRO2, ZeRO3, ZeROInfinity, ZeROOffload
from .engine import Engine, schedule_of
from .experts import LoadBalance, check_experts, table_of
from .mesh import check_mesh, data_rank, groups_of_experts, groups_of_states, make_mesh, place_in

ZERO = (ZeRO1, ZeRO1, ZeRO2, ZeRO3)  # 0 is 1 with a shard group of one rank
OFFLOADED = (None, ZeROOffload, ZeROOffload, ZeROInfinity)  # in the host's memory


@validate(model=gpts, plan=Plan, optimizer_class=type[torch.optim.Optimizer], param_groups=several)
@validate(load_balance=LoadBalance)
def parallelize(
    model, plan, optimizer_class=torch.optim.AdamW, param_groups=None, mesh=None, scaler_rule=None, load_balance=None,
    **options,
):  # fmt: skip
    """Parallelize a GPT or Decoder; returns this rank's ``Engine``. The model is consumed; initial values are rank 0's.

    ``param_groups``: of the model's parameters, as optimizers take them. ``mesh``: a ``DeviceMesh`` with the axes of
    mesh.py in another order, to lay ranks out otherwise. ``scaler_rule``: for fp16. ``load_balance``: of experts, of
    which the model has all: ``with_experts(GPT(config), 8, 2, group=alone())``. ``options``: the optimizer's.

    Raises ``ValueError`` for a plan that the model, or the number of ranks, does not suit.
    """
    if not plan.overlap_comm:
        raise ValueError("parallelize: overlap_comm=False is for the planner: gradients are reduced in backward here")
    if plan.recompute == "per_op":
        raise ValueError("parallelize: recompute='per_op' is for the planner: use 'selective' or 'full' here")
    check_experts(model, plan, load_balance)
    mesh = make_mesh(plan) if mesh is None else check_mesh(plan, mesh)
    pp, tp = mesh.get_group("pp"), mesh.get_group("tp")
    states = groups_of_states(plan, mesh)
    sizes, width = plan.stage_layers(len(model.blocks)), model.config.dim
    sizes[0] += 1  # the embedding
    sizes[-1] += 1  # the head
    groups = by_name(model, param_groups)

    check_same_parameters("parallelize", model, pp)
    broadcast_all([*model.parameters(), *model.buffers()], group=pp)
    cast_parameters(model, dtype_of(plan))
    if table := table_of(model):
        of_experts, sharing = groups_of_experts(plan, mesh)
        shard_experts(model, sharing)
    shard(model, tp, sequence_parallel=plan.sequence_parallel, table=table)
    if plan.cp > 1:
        shard_attention(model, mesh.get_group("cp"), plan.context)
    recomputed(model, plan.recompute)
    names = names_of(model)
    stages = cut(layers_of(model), sizes)
    tied = untied(stages)
    names |= {copy: names[original] for _, original, _, copy in tied}
    mine = {number: stages[number] for number in schedule_of(plan).stages_of(mesh.get_local_rank("pp"))}
    experts = set(split(nn.ModuleList(mine.values()))[1].parameters())  # of this rank's stages: the others are let go

    def ranks_of(parameter):
        """(Those among whom its states are sharded, those that have the same shards.)"""
        return of_experts if parameter in experts else states

    shared, zero = {names[parameter] for _, parameter, _, _ in tied}, {}
    for number, stage in mine.items():
        copies = {each: (copies_of(each, tp), names[each] in shared) for each in stage.parameters()}
        how = dict(group=states[0], replicas=states[1], ranks_of=ranks_of, apart=copies.get, **options)
        zero[number] = around(stage, plan, list(stage), optimizer_class, of_stage(stage, names, groups), **how)
        for bucket in zero[number].buckets:
            bucket.norm_weight = 1 / (copies_of(bucket.parameters[0], tp) * dist.get_world_size(bucket.replicas))
    seed_rng_per_rank(plan, mesh)
    scaler = LossScaler(scaler_rule) if plan.precision == "fp16" else None
    engine = Engine(plan, mesh, mine, zero, tied, names, model.cross_entropy, width, scaler)
    if load_balance:
        load_balance.start(engine)
    return engine


def cast_parameters(model, dtype):
    """Buffers stay: the bias of a router moves by less than 16 bits can say."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def dtype_of(plan):
    return getattr(torch, DTYPES[plan.precision])


def names_of(model):
    """Parameter or buffer -> name."""
    return {each: name for name, each in [*model.named_parameters(), *model.named_buffers()]}


def by_name(model, param_groups):
    """Parameter groups, each with the names of its parameters: they will be others."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    given = list(model.parameters() if param_groups is None else param_groups)
    groups = given if given and isinstance(given[0], dict) else [{"params": given}]
    foreign = [parameter for each in groups for parameter in each["params"] if parameter not in names]
    if foreign:
        found = ", ".join(map(shown, foreign))
        raise ValueError(f"parallelize: param_groups has parameters that are not in the model: {found}")
    return [{**each, "params": {names[parameter] for parameter in each["params"]}} for each in groups]


def of_stage(stage, names, groups):
    """The same groups, as far as their parameters are there."""
    return [{**each, "params": [p for p in stage.parameters() if names[p] in each["params"]]} for each in groups]


def around(module, plan, layers, *given, **how):
    """Wrap a stage with ZeRO at the plan's stage and offload device. In stage 3 each layer is a unit."""
    kind = (OFFLOADED if plan.offload else ZERO)[plan.zero]
    how |= {"units": layers} if plan.zero == 3 else {"overlap_param_gather": plan.overlap_param_gather}
    return kind(module, *given, **how)


def recomputed(model, how):
    if how == "full":
        recompute(model.blocks)
    if how == "selective":  # what attention does with queries, keys and values
        attentions = [block.attention for block in model.blocks]
        recompute(attentions, "mix" if hasattr(attentions[0], "mix") else "attend")


def seed_rng_per_rank(plan, mesh):
    """Seed random generators: the same within a tensor-parallel group, different across all other ranks."""
    device = device_of_group(None)
    (seed,) = numbers_of_root([torch.initial_seed() % 2**31], device)
    place = place_in(mesh)
    torch.manual_seed(seed + (place.pp * plan.dp + data_rank(plan, place)) * plan.cp + place.cp)
