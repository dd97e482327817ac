"""Runs with names, of programs that say none: four layers trained in several ways on four ranks, pipelines, parts of
weights, experts; and of one that labels its caches."""

from functools import cache, partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import mse_loss

import tinydist
from tinydist import zero
from tinydist.attention.kv_cache import KVCache
from tinydist.data_parallel import DDP
from tinydist.hardware import default_cluster
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
    kind = {1: zero.ZeRO1, 2: zero.ZeRO2, 3: zero.ZeRO3}[number]
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


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def tensor_parallel():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    net = parallelize_module(MLP(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer, x = torch.optim.Adam(net.parameters()), torch.ones(8, 64)
    for _ in range(2):
        mse_loss(net(x), x).backward()
        optimizer.step()


class Mixture(nn.Module):
    """Each rank has two of eight experts, and is sent as many tokens as it sends."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(64, 8)
        mine = range(2 * dist.get_rank(), 2 * dist.get_rank() + 2)
        self.experts = nn.ModuleList(MLP() if number in mine else None for number in range(8))

    def forward(self, x):
        weights, arrived = self.router(x).softmax(-1).mean(-1, True), torch.empty_like(x)
        dist.all_to_all_single(arrived, x)
        experts = [expert for expert in self.experts if expert]
        done = torch.cat([expert(part) for expert, part in zip(experts, arrived.chunk(2))])
        returned = torch.empty_like(done)
        dist.all_to_all_single(returned, done)
        return weights * returned


@torch.no_grad()
def experts():
    Mixture()(torch.ones(16, 64))


def caches():
    """Of eight heads and 32 tokens, cut in both ways."""
    kept = {"by heads": KVCache(1, 2, 32, 16), "by tokens": KVCache(1, 8, 8, 16)}
    for dim, (name, each) in enumerate(kept.items()):
        for part in (each.keys, each.values):
            tinydist.label(part, name, shard=dist.get_rank(), dim=dim)
    tinydist.mark("there")


# Rings of messages are short beside these layers, so that there is room for names.
FAKE = {"fake": True, "backend": "simulated", "cluster": default_cluster().with_algorithm("ring")}
PROGRAMS = {
    "ddp": (partial(train, ddp), FAKE),
    "torch ddp": (partial(train, torch_ddp, steps=1), {"backend": "simulated"}),  # it looks at numbers
    "fsdp": (partial(train, fsdp), FAKE),
    "zero 1": (partial(train, partial(stage, 1)), FAKE),
    "zero 2": (partial(train, partial(stage, 2)), FAKE),
    "zero 3": (partial(train, partial(stage, 3)), FAKE),
    "tensor parallel": (tensor_parallel, FAKE),
    "torch pipeline": (torch_pipeline, {"backend": "simulated"}),
    "pipeline": (pipeline, {"backend": "simulated"}),
}
WITHOUT_BACKWARD = {"experts": (experts, FAKE), "caches": (caches, {})}


@cache
def named_run(name):
    program, options = (PROGRAMS | WITHOUT_BACKWARD)[name]
    return tinydist.launch(program, RANKS, **options)
