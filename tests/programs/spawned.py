"""DDP with mp.spawn: each process sets the address, is given its rank, and returns what it found in a queue."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

calls = 0


class Found:
    def __init__(self, rank, loss):
        self.rank, self.loss = rank, loss


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def work(rank, world_size, found, model):
    global calls
    calls += 1
    setup(rank, world_size)
    model = DDP(model)
    loss = model(torch.full((2, 4), float(rank))).sum()
    loss.backward()
    found.put(Found(rank, loss.item()))
    print(f"{rank} of {world_size}, call {calls}, arguments {sys.argv[1:]}, gradient {model.module.weight.grad[0, 0]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    world_size = 3
    torch.manual_seed(0)
    found = mp.get_context("spawn").SimpleQueue()
    mp.spawn(work, args=(world_size, found, nn.Linear(4, 1, bias=False)), nprocs=world_size, join=True)
    losses = sorted((each.rank, each.loss) for each in (found.get() for _ in range(world_size)))
    print(f"{calls} calls here, losses of ranks {[rank for rank, _ in losses]}, the first {losses[0][1]}")
