"""Checks that all ranks have the same parameters (shapes, dtypes), and broadcast of the initial values.

Without these checks, messages of different sizes would be matched: a hang, or silently corrupted parameters.
"""

import torch
import torch.distributed as dist
from torch._subclasses import FakeTensor


def check_same_parameters(name, module, group=None, among=None):
    """Raise ``ValueError`` (prefixed by ``name``) on all ranks if modules differ. Fake ranks are assumed equal.

    ``among``: those parameters of the module that are compared; None: all.
    """
    parameters = {name: p for name, p in module.named_parameters() if among is None or p in among}
    if any(isinstance(parameter, FakeTensor) for parameter in parameters.values()):
        return
    mine = [(name, tuple(p.shape), str(p.dtype), p.requires_grad) for name, p in parameters.items()]
    everybodys = [None] * dist.get_world_size(group)
    dist.all_gather_object(everybodys, mine, group)
    for rank, theirs in enumerate(everybodys):
        if theirs != everybodys[0]:
            first = min((entry[0] for entry in set(theirs) ^ set(everybodys[0])), default="their order")
            raise ValueError(
                f"{name}: parameters differ between ranks: rank {rank} has {len(theirs)} and rank 0 has "
                f"{len(everybodys[0])}; first difference: {first}"
            )


@torch.no_grad()
def broadcast_all(tensors, root=0, group=None):
    """All ranks get the tensors of the group's rank ``root``."""
    for tensor in tensors:
        dist.broadcast(tensor, group=group, group_src=root)


def numbers_of_root(numbers, device, group=None):
    """Broadcast integers from the group's rank 0; every rank passes as many. Fake ranks pass the same."""
    tensor = torch.tensor(numbers, dtype=torch.int32, device=device)
    dist.broadcast(tensor, group=group, group_src=0)
    return numbers if isinstance(tensor, FakeTensor) else tensor.tolist()


def around(group, replicas):
    """From one of each node to the others: first across, then inside."""
    return [replicas, group] if replicas else [group]
