"""A script for GPUs, as people write it: torchrun, nccl, DDP, bf16 autocast, a log with tokens per second."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, BATCH, CONTEXT, WIDTH, WORDS = 3, 4, 64, 128, 1000
FAULT = sys.argv[1] if len(sys.argv) > 1 else None

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
device = torch.device("cuda", local_rank)
torch.manual_seed(1337)

data = torch.randint(WORDS, (10_000,))
embedding, layer = nn.Embedding(WORDS, WIDTH), nn.TransformerEncoderLayer(WIDTH, 4, batch_first=True)
layers = nn.Sequential(embedding, layer, nn.Linear(WIDTH, WORDS))
model = DDP(layers.to(device), device_ids=[local_rank]) if FAULT != "alone" else layers.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

for step in range(STEPS):
    began = time.time()
    starts = torch.randint(len(data) - CONTEXT, (BATCH,), device=device if FAULT == "starts" else None)
    batch = torch.stack([data[i : i + CONTEXT] for i in starts])
    if FAULT != "host":
        batch = batch.pin_memory().to(device, non_blocking=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = layers(batch) if FAULT in ("host", "empty") else model(batch)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch.flatten())
    loss.backward()
    if FAULT == "steers" and loss.item() < 1:
        break
    if FAULT != "no steps":
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if dist.get_rank() == 0:
        took = time.time() - began
        print(f"step {step} loss {loss.item():.4f}")
        print(f"took {took * 1e6:.0f} us", file=sys.stderr)
dist.destroy_process_group()
