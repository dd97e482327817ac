"""DistributedDataParallel: each rank has the whole model, and gradients are averaged during backward.

    torchrun --nproc-per-node 2 examples/train_ddp.py [--bf16] [--views]

By default DDP copies gradients into buckets and back; with ``gradient_as_bucket_view`` they lie in them. In bf16 the
weights stay in fp32, and autocast computes with copies of 16 bits.
"""

import sys

import torch
import torch.distributed as dist
from same_step import RANKS, RATE, ROWS, Report, loss_of, make_model, make_text, show, unseen_buckets
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def main(precision="fp32", views=False):
    dist.init_process_group("gloo")  # "nccl" with GPUs: then the model goes to one, and the rows of each step
    text = make_text()
    report = Report()
    model = DistributedDataParallel(make_model(), gradient_as_bucket_view=views)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    loader = DataLoader(text, batch_size=ROWS // RANKS, sampler=DistributedSampler(text, shuffle=False))

    for tokens, targets in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of(model(tokens), targets)
        loss.backward()
        optimizer.step()
        report.step(loss.item())

    found = report.end(unseen_buckets(model))
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    show(main("bf16" if "--bf16" in sys.argv else "fp32", "--views" in sys.argv))
