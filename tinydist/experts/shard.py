"""A model with all experts, on every rank: each rank of a group keeps its own.

    before    rank 0: 0 1 2 3    rank 1: 0 1 2 3        with_experts(GPT(config), 4, group=alone())
    after     rank 0: 0 1        rank 1: 2 3            shard_experts(model, group), values are rank 0's

As other techniques are applied (``tensor_parallel.shard``): the model is made as in one process. It must fit into a
rank's memory once; ``MoE`` with a group makes a rank's own experts alone.
"""

import torch.distributed as dist
from torch import nn

from ..collectives.agreement import broadcast_all, check_same_parameters
from ..rules import validate
from .all_to_all import part_of_experts, place
from .balance import layers_of


def alone():
    """The group of this rank alone: an MoE layer that is made with it has all experts."""
    return dist.new_group([dist.get_rank()], use_local_synchronization=True) if dist.is_initialized() else None


def check_has_all(model):
    for layer in layers_of(model):
        have, wanted = len(layer.experts), layer.router.experts
        if have != wanted:
            words = f"a layer has {have} of {wanted} experts (rank {place()[0]}): make it with group=alone()"
            raise ValueError(f"shard_experts: {words}")


@validate(model=nn.Module, group=dist.ProcessGroup)
def shard_experts(model, group=None):
    """In place. Raises ``ValueError`` if a layer has not all its experts, or they are not divisible."""
    check_has_all(model)
    for layer in layers_of(model):
        part_of_experts(layer.router.experts, place(group)[1])
    check_same_parameters("shard_experts", model, group)
    broadcast_all([*model.parameters(), *model.buffers()], group=group)
    for layer in layers_of(model):
        layer.share(group)
    return model
