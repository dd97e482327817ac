"""Forecasts at a billion parameters: DDP and fully_shard hold what the formulas of bytes per parameter say.

Rajbhandari et al. 2020, ZeRO, section 3.1: in fp32 with Adam, 4 bytes per parameter for itself, 4 for its gradient,
8 for the optimizer's moments. DDP adds its buckets: a copy of all gradients.
"""

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import tinydist

RANKS, WIDTH, LAYERS = 8, 4096, 60  # 60 * 4096**2 = 1.007 billion


def steps(shard):
    def program():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])
        model = shard(model.cuda())
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
        for _ in range(2):
            model(torch.ones(1, WIDTH, device="cuda")).sum().backward()
            optimizer.step()
            tinydist.mark("stepped")
            optimizer.zero_grad()

    return program


def ddp(model):
    return nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])


def sharded(model):
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


@pytest.mark.parametrize(("shard", "ranks_of_a_parameter"), [(ddp, 1), (sharded, RANKS)])
def test_bytes_per_parameter(shard, ranks_of_a_parameter):
    run = tinydist.launch(steps(shard), RANKS, init=False, gpus=True, fake=True, only=[0], cluster="A100 node")
    each = LAYERS * WIDTH**2 / ranks_of_a_parameter
    held = run.memory[0].at("stepped")
    assert held["parameters"] == held["gradients"] == 4 * each
    assert held["optimizer states"] == pytest.approx(8 * each, rel=1e-6), "and a step count for each parameter"
    buckets = 4 * each if shard is ddp else 0
    assert sum(held.values()) == pytest.approx((4 + 4 + 8) * each + buckets, rel=0.01)
