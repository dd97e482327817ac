"""fully_shard, which is FSDP2: each rank keeps a shard of parameters, gradients and Adam's states (ZeRO-3).

    torchrun --nproc-per-node 2 examples/train_fsdp2.py [--bf16] [--keep]

Each block is a unit: gathered before it runs, freed after. With --keep its parameters stay until backward (ZeRO-2). In
bf16 the shards and the optimizer stay in fp32; what is gathered has 16 bits, and gradients are added up in 32.
"""

import sys

import torch
import torch.distributed as dist
from same_step import RANKS, RATE, ROWS, Report, loss_of, make_model, make_text, show
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler

POLICIES = {
    "fp32": MixedPrecisionPolicy(),
    "bf16": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
}


def main(precision="fp32", keep=False):
    dist.init_process_group("gloo")
    text = make_text()
    report = Report()
    model = make_model()
    mesh = init_device_mesh("cpu", (RANKS,))  # "cuda" with GPUs
    for module in (*model.blocks, model):  # from the inside outwards: the model has what no block has
        fully_shard(module, mesh=mesh, mp_policy=POLICIES[precision], reshard_after_forward=not keep)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)  # after: its states are of shards
    loader = DataLoader(text, batch_size=ROWS // RANKS, sampler=DistributedSampler(text, shuffle=False))

    for tokens, targets in loader:
        optimizer.zero_grad()
        loss = loss_of(model(tokens), targets)
        loss.backward()
        optimizer.step()
        report.step(loss.item())

    found = report.end()
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    show(main("bf16" if "--bf16" in sys.argv else "fp32", keep="--keep" in sys.argv))
