"""Two parts of a model: the replicated parameters, and the experts. Their gradients are averaged over different ranks.

    dp = 4, ep = 2        rank 0       rank 1       rank 2       rank 3
    dense                 D            D            D            D           averaged over all
    experts               0 1          2 3          0 1          2 3         averaged over those with the same: 0 and 2

The gradient of an expert has a summand from each rank of its expert group already, and is their mean (expert.py). So
whatever averages gradients takes each part with its own group, and nothing else changes:

    dense, experts = split(model)
    ZeRO2(dense, AdamW, group=data)    ZeRO2(experts, AdamW, group=same_experts)     or stage 1, or average_flat

    mesh = init_device_mesh("cpu", (dp // ep, ep), mesh_dim_names=("same_experts", "experts"))

    bytes all-reduced     2 (dp-1)/dp dense + 2 (dp/ep-1)/(dp/ep) experts/ep: with ep = dp experts need none

Averaged over all ranks, an expert would get the gradients of others. (Stage 3 gathers when a module is called, and
parts are not: there one ``ZeRO3`` has the model, and its ``ranks_of`` says among which ranks a parameter is sharded. So
the engine has it for all stages: ``parallelize(model, Plan(dp=4, ep=2, zero=3))``.)

Tensor parallelism cuts experts, too, if the table of ``shard`` has a row for them (tests/experts/test_parallel.py).
Source: Rajbhandari et al., DeepSpeed-MoE, 2022, section 5.2.
"""

import torch
import torch.distributed as dist
from torch import nn

from ..checkpoint.checkpointable import Checkpointable
from ..rules import rate, validate
from .expert import Experts


@validate(model=nn.Module)
def split(model):
    """(dense, experts): two modules with the parameters of ``model``, by the same names. Neither is to be called."""
    return part_of(model, experts=False), part_of(model, experts=True)


def part_of(module, experts, inside=False):
    """A copy of the tree of modules with its parameters: those of experts, or the others."""
    inside, part = inside or isinstance(module, Experts), nn.Module()
    if inside == experts:
        part._parameters, part._buffers = dict(module._parameters), dict(module._buffers)
    children = {name: child for name, child in module._modules.items() if child is not None}
    part._modules = {name: part_of(child, experts, inside) for name, child in children.items()}
    return part


@validate(model=nn.Module, max_norm=rate, group=dist.ProcessGroup)
@torch.no_grad()
def clip_grad_norm_(model, max_norm, group=None):
    """Clip the global norm of averaged gradients. ``group``: the ranks that share the experts. Returns the norm.

    Without tensor parallelism. Parts in ZeRO: from the ``squared_norm`` of each.
    """
    dense, experts = ([p.grad for p in part.parameters() if p.grad is not None] for part in split(model))
    square = norm_of(experts)
    dist.all_reduce(square, group=group)
    norm = (square + norm_of(dense)).sqrt()
    torch._foreach_mul_(dense + experts, (float(max_norm) / (norm + 1e-6)).clamp(max=1.0))
    return norm


def norm_of(gradients):
    """Squared, in fp32 at least."""
    wide = torch.promote_types(gradients[0].dtype, torch.float32)
    return torch.stack([torch.linalg.vector_norm(each, dtype=wide).square() for each in gradients]).sum()


class Parts(Checkpointable):
    """Several states as one checkpoint: ``save(Parts(zero_of_dense, zero_of_experts), folder)``.

    Experts are known by their numbers, so what 8 ranks have saved 2 can load, of which each has four times as many. All
    ranks of the world call it, and each number of the model must be in the share of one rank alone: with tensor
    parallelism, or copies on other nodes, training/checkpoint.py shows how.
    """

    group = None

    def __init__(self, *states):
        self.states = states
        self.state_of = {row: state for state in states for row in state.rows}
        self.rows, self.steps = list(self.state_of), states[0].steps

    @property
    def names(self):
        return {parameter: name for state in self.states for parameter, name in state.names.items()}

    @property
    def buffers(self):
        return {name: buffer for state in self.states for name, buffer in state.buffers.items()}

    @property
    def optimizer_name(self):
        return self.states[0].optimizer_name

    def kept(self, row):
        return self.state_of[row].kept(row)

    def param_group(self, row):
        return self.state_of[row].param_group(row)

    def restore(self, loaded):
        for state in self.states:
            state.restore({row: kept for row, kept in loaded.items() if self.state_of[row] is state})
            state.steps = self.steps
