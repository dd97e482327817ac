"""Two training steps on a mesh of 2 x 2. They never end: one rank calls a collective of one of its groups too often.

Notebook 01b counts the calls of each group.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def train_on_a_mesh():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for step in (1, 2):
        activation = torch.ones(1)
        dist.all_reduce(activation, group=mesh["tp"].get_group())
        gradient = torch.ones(1)
        if dist.get_rank() == 3 and step == 2:
            dist.all_reduce(gradient, group=mesh["dp"].get_group())
        dist.all_reduce(gradient, group=mesh["dp"].get_group())
        loss = torch.ones(1)
        dist.all_reduce(loss)
