"""Runs with names, of programs that say none: four layers trained in several ways on four ranks, and pipelines."""

from functools import cache, partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.functional import mse_loss

import tinydist
from tinydist import zero
from tinydist.data_parallel import DDP
from tinydist.pipeline_parallel import Worker, make_schedule

WIDTH, LAYERS, RANKS = 1000, 4, 4


def stack(dtype=torch.bfloat16):
    layers = [nn.Linear(WIDTH, WIDTH, bias=False, dtype=dtype) for _ in range(LAYERS)]
    return nn.Sequential(*(module for layer in layers for module in (layer, nn.ReLU())))


def ddp(net):
    return torch.optim.Adam(net.parameters()), DDP(net)


def torch_ddp(net):
    return torch.optim.Adam(net.parameters()), nn.parallel.DistributedDataParallel(net, bucket_cap_mb=3)


def fsdp(net):
    for layer in net[::2]:
        fully_shard(layer)
    return torch.optim.Adam(net.parameters()), fully_shard(net)


def stage(number, net):
    kind = {1: zero.OptimizerStates, 2: zero.Gradients, 3: zero.Parameters}[number]
    units = {"units": list(net[::2])} if number == 3 else {}
    return kind(net, optimizer_class=torch.optim.Adam, **units), net


def train(make, steps=2):
    optimizer, net = make(stack())
    for _ in range(steps):
        x = torch.ones(512, WIDTH, dtype=torch.bfloat16)
        mse_loss(net(x), x).backward()
        optimizer.step()
        optimizer.zero_grad()


def torch_pipeline(microbatches=3):
    mine = PipelineStage(nn.Linear(64, 64), dist.get_rank(), dist.get_world_size(), torch.device("cpu"))
    x = torch.ones(4 * microbatches, 64)
    first, last = dist.get_rank() == 0, dist.get_rank() == dist.get_world_size() - 1
    ScheduleGPipe(mine, microbatches, loss_fn=mse_loss).step(*[x] * first, **{"target": x} if last else {})


def pipeline(microbatches=3):
    rank = dist.get_rank()
    stages = {rank: nn.Linear(64, 64)}
    schedule = make_schedule("1F1B", dist.get_world_size(), microbatches)
    x = torch.ones(4 * microbatches, 64)
    Worker(schedule, stages, torch.empty(4, 64, device="meta"), mse_loss).step(x, x)


FAKE = {"fake": True, "backend": "simulated"}
PROGRAMS = {
    "ddp": (partial(train, ddp), FAKE),
    "torch ddp": (partial(train, torch_ddp, steps=1), {"backend": "simulated"}),  # it looks at numbers
    "fsdp": (partial(train, fsdp), FAKE),
    "zero 1": (partial(train, partial(stage, 1)), FAKE),
    "zero 2": (partial(train, partial(stage, 2)), FAKE),
    "zero 3": (partial(train, partial(stage, 3)), FAKE),
    "torch pipeline": (torch_pipeline, {"backend": "simulated"}),
    "pipeline": (pipeline, {"backend": "simulated"}),
}


@cache
def named_run(name):
    program, options = PROGRAMS[name]
    return tinydist.launch(program, RANKS, **options)
