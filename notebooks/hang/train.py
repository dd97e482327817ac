"""Three training steps and a checkpoint, on four processes. It never ends: one line is in the wrong place.

    torchrun --nproc-per-node 4 train.py

Notebook 01b shows how it looks from outside, and how the line is found.
"""

import os
import time

import torch
import torch.distributed as dist

LOG_EVERY = 2


def log(step):
    metric = torch.tensor([100.0])
    dist.all_reduce(metric)
    print(f"step {step}: metric {metric.item()}", flush=True)


def train(numbers=1):
    weight = torch.zeros(numbers)
    for step in (1, 2, 3):
        if dist.get_rank() == 0 and step % LOG_EVERY == 0:
            log(step)
        gradient = torch.ones(numbers)
        dist.all_reduce(gradient)
        weight -= gradient
    return weight


def checkpoint(weight):
    if dist.get_rank() == 0:
        torch.save(weight, "checkpoint.pt")
    while not os.path.exists("checkpoint.pt"):
        time.sleep(0.1)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    checkpoint(train())
    dist.destroy_process_group()
