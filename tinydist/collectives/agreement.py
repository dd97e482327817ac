"""What ranks must agree on before they train one module: its parameters are the same, and start alike.

Without it, messages of other sizes would meet: a hang, or numbers in the wrong parameter.
"""

import torch
import torch.distributed as dist
from torch._subclasses import FakeTensor


def check_same_parameters(name, module, group=None):
    """Raises ``ValueError`` on all ranks, in the words of ``name``, if their modules differ. Fake ranks are alike."""
    parameters = dict(module.named_parameters())
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
    """As many whole numbers as each rank brings: those of the group's rank 0. Fake ranks bring the same."""
    tensor = torch.tensor(numbers, dtype=torch.int32, device=device)
    dist.broadcast(tensor, group=group, group_src=0)
    return numbers if isinstance(tensor, FakeTensor) else tensor.tolist()


def around(group, replicas):
    """From one of each node to the others: first across, then inside."""
    return [replicas, group] if replicas else [group]
