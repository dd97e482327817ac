"""A run of gloo on a mesh that went wrong, and what PyTorch's Flight Recorder kept of it: tests/flight_records/mesh.

    python tests/mesh_records.py             writes them anew, a file for each rank

Six ranks, dp=2 x tp=3. In each step a rank sums along tp in forward and in backward, and then along dp. In the second
step rank 4 leaves between forward and backward.
"""

import math
import os
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from flight_records import FOLDER, without_this_machine
from torch.distributed.device_mesh import init_device_mesh

import tinydist
from tinydist.processes.flight_recorder import save_record

MESH = (2, 3)


def train(rank):
    axes = init_device_mesh("cpu", MESH, mesh_dim_names=("dp", "tp"))
    tp, dp = axes.get_group("tp"), axes.get_group("dp")
    for step in range(3):
        dist.all_reduce(torch.ones(8), group=tp)  # forward
        if rank == 4 and step == 1:
            return
        dist.all_reduce(torch.ones(8), group=tp)  # backward
        dist.all_reduce(torch.ones(4), group=dp)  # gradients


def recorded(folder):
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    with suppress(RuntimeError):  # it has waited in vain
        train(rank)
    save_record(folder, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    folder = FOLDER / "mesh"
    tinydist.launch(recorded, math.prod(MESH), folder, backend="gloo", init=False)
    for path in folder.iterdir():
        without_this_machine(path)
