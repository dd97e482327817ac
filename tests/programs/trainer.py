"""A Trainer class with snapshots, as in PyTorch's tutorials: the second run goes on where the first one ended."""

import atexit
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, path):
        self.path, self.epoch, self.rank = path, 0, int(os.environ["RANK"])
        self.model = DDP(model)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        if os.path.exists(path):
            self.load()

    def load(self):
        snapshot = torch.load(self.path, weights_only=True)
        self.model.module.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.epoch = snapshot["epoch"]
        print(f"rank {self.rank} resumes at epoch {self.epoch}")

    def save(self):
        states = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(states | {"epoch": self.epoch}, self.path)

    def train(self, epochs):
        while self.epoch < epochs:
            self.optimizer.zero_grad()
            self.model(torch.full((2, 4), float(self.rank))).sum().backward()
            self.optimizer.step()
            self.epoch += 1
        if self.rank == 0:
            self.save()
        dist.barrier()
        print(f"rank {self.rank}: weight {self.model.module.weight[0, 0].item():.6f} after {self.epoch} epochs")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    atexit.register(dist.destroy_process_group)
    torch.manual_seed(0)
    Trainer(nn.Linear(4, 1), sys.argv[1]).train(int(sys.argv[2]))
