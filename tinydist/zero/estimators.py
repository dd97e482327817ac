"""What model states need, before anything is run: the paper's formulas, and DeepSpeed's estimates.

    bytes a parameter      paper            DeepSpeed, on the device
    stage 1                4 + 12/p         -
    stage 2                2 + 14/p         2 + 18/p: gradients in fp32 too, at the step
    stage 3                16/p             18/p, and 4 of the largest layer: it is gathered, with its gradients

16-bit weights and gradients; fp32 master weights and two moments. Activations, buffers and what is fragmented come on
top. Sources: Rajbhandari et al., ZeRO, 2019, section 3.1 and figure 1; DeepSpeed's documentation, "Memory
Requirements", and its functions estimate_zero2_ and estimate_zero3_model_states_mem_needs (read and executed).
"""

from typing import NamedTuple

from torch.nn import Module

from .. import rules
from ..rules import amount, flag, takes, within

WEIGHT, GRADIENT, STATES = 2, 2, 12  # bytes a parameter
SIZES = {
    **dict.fromkeys(["parameters", "largest_layer", "margin"], amount),
    **dict.fromkeys(["devices_per_node", "nodes"], rules.count),
    **dict.fromkeys(["offload_optimizer", "offload_parameters", "sharded_start"], flag),
}


@takes(parameters=amount)
def model_states(parameters, stage, ranks):
    """Bytes a rank, as in the paper. Stage 0 is DDP."""
    if not (within(0, 3)(stage) and rules.count(ranks)):
        raise ValueError(f"model_states: stage is 0 to 3 and ranks 1 or more, got stage {stage} and {ranks} ranks")
    shards = [ranks if stage >= sharded_from else 1 for sharded_from in (3, 2, 1)]
    return sum(parameters * size / shard for size, shard in zip((WEIGHT, GRADIENT, STATES), shards))


class Needs(NamedTuple):
    """Bytes."""

    host: int  # for each node
    device: int  # for each device


@takes(**SIZES)
def zero2_needs(parameters, devices_per_node=1, nodes=1, offload_optimizer=True, margin=1.5):
    """DeepSpeed's estimate for stage 2. ``margin``: what a host needs above the sum."""
    devices = devices_per_node * nodes
    if offload_optimizer:
        return Needs(int(parameters * max(4 * devices, 16) * margin), 2 * parameters)
    return Needs(int(parameters * 4 * devices_per_node * margin), 2 * parameters + int(18 * parameters / devices))


@takes(**SIZES)
def zero3_needs(
    parameters,
    largest_layer,
    devices_per_node=1,
    nodes=1,
    offload_optimizer=True,
    offload_parameters=True,
    sharded_start=True,
    margin=1.5,
):
    """DeepSpeed's estimate for stage 3.

    ``largest_layer``: the most parameters that one module has itself. ``sharded_start``: the model is made in shards
    (DeepSpeed: zero.Init), else each process of a node begins with a whole one in fp32.
    """
    if offload_parameters and not offload_optimizer:
        raise ValueError("zero3_needs: parameters are offloaded only together with the optimizer's states")
    devices, gathered = devices_per_node * nodes, 4 * largest_layer
    at_start = 4 * devices_per_node
    if not offload_optimizer:
        host = largest_layer * at_start if sharded_start else parameters * at_start
        return Needs(int(host * margin), gathered + int(18 * parameters / devices))
    host = (18 if offload_parameters else 16) / nodes
    device = 0 if offload_parameters else int(2 * parameters / devices)
    return Needs(int(parameters * (host if sharded_start else max(at_start, host)) * margin), gathered + device)


@takes(module=Module)
def count(module):
    """(parameters, those of the largest layer) of a module; a shared one counts once."""
    largest = max(sum(p.numel() for p in each.parameters(recurse=False)) for each in module.modules())
    return sum(p.numel() for p in module.parameters()), largest
