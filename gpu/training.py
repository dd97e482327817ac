"""Steps of a GPT by our techniques and by torch's own, on the same devices: losses, bytes held, seconds a step.

Beside what torch's allocator counts stands the peak of the ledger, and beside the seconds those of the clock: both from
the same program on simulated ranks with fake tensors.
"""

import gc
import statistics
import time
import warnings
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tinydist
from tinydist.data_parallel import DDP
from tinydist.model import GPT
from tinydist.model.gpt import Block
from tinydist.precision import autocast
from tinydist.zero import ZeRO1, ZeRO2, ZeRO3

ADAM = dict(lr=1e-3)


class WithLoss(nn.Module):
    """What is wrapped: its output is the loss. The same weights on all ranks."""

    def __init__(self, config, device):
        super().__init__()
        torch.manual_seed(0)
        self.model = GPT(config).to(device)

    def forward(self, tokens, targets):
        return self.model.loss(tokens, targets)


def with_adam(module):
    return module, torch.optim.AdamW(module.parameters(), **ADAM)


def zero(stage, config, device, **options):
    module = WithLoss(config, device)
    return module, stage(module, torch.optim.AdamW, **options, **ADAM)


def zero_redundancy_optimizer(config, device):
    with warnings.catch_warnings(action="ignore"):  # it uses torch.jit
        from torch.distributed.optim import ZeroRedundancyOptimizer

        module = DistributedDataParallel(WithLoss(config, device), gradient_as_bucket_view=True)
        return module, ZeroRedundancyOptimizer(module.parameters(), torch.optim.AdamW, **ADAM)


def torchs_fully_shard(reshard, config, device):
    module, mesh = WithLoss(config, device), init_device_mesh(device, (dist.get_world_size(),))
    for each in (*module.model.blocks, module):
        fully_shard(each, mesh=mesh, reshard_after_forward=reshard)
    return with_adam(module)


# Name -> ours, torch's own: each takes a configuration and a device, and makes a module and its optimizer.
DDPS = (
    lambda config, device: with_adam(DDP(WithLoss(config, device))),
    lambda config, device: with_adam(DistributedDataParallel(WithLoss(config, device))),
)
PAIRS = {
    "DDP": DDPS,
    "ZeRO 1": (partial(zero, ZeRO1), zero_redundancy_optimizer),
    "ZeRO 2": (partial(zero, ZeRO2), partial(torchs_fully_shard, False)),
    "ZeRO 3": (
        partial(zero, ZeRO3, units=lambda each: isinstance(each, Block)),
        partial(torchs_fully_shard, True),
    ),
    "mixed precision": DDPS,
}
AUTOCASTS = {"mixed precision": (autocast, torch.autocast)}
TOLERANCE = {"mixed precision": 1e-2}  # of losses; else FULL
FULL = 1e-4


def trained(name, which, config, device, rows, steps):
    """The mean losses of all ranks, the most bytes that the allocator held (None on processors), seconds a step."""
    lower = AUTOCASTS[name][which] if name in AUTOCASTS else None
    before = held_before(device)
    module, optimizer = PAIRS[name][which](config, device)
    sequence = torch.arange(rows * (config.context + 1), device=device).view(rows, -1) * (2 * dist.get_rank() + 3)
    tokens, targets = sequence[:, :-1] % config.vocab_size, sequence[:, 1:] % config.vocab_size
    losses, seconds = [], []
    for _ in range(steps):
        began = now(device)
        optimizer.zero_grad()
        with lower(device, torch.bfloat16) if lower else nullcontext():
            loss = module(tokens, targets)
        loss.backward()
        optimizer.step()
        seconds.append(now(device) - began)
        losses.append(loss.detach().float())
    losses = torch.stack(losses)
    held = torch.cuda.max_memory_allocated() - before if device == "cuda" else None
    dist.all_reduce(losses)
    return losses / dist.get_world_size(), held, statistics.median(seconds[1:] or seconds)


def held_before(device):
    """Bytes; the peak is counted from now on."""
    if device != "cuda":
        return 0
    gc.collect()  # what the call before has left in this process
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def now(device):
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def compare(name, machine):
    how = machine.config, machine.device, machine.rows, machine.steps
    found = [machine.launch(on_host, name, which, *how) for which in (0, 1)]
    (ours, *_), (theirs, *_) = (run.results[0] for run in found)
    torch.testing.assert_close(ours, theirs, rtol=TOLERANCE.get(name, FULL), atol=0, msg=partial("losses: {}".format))
    told = [foretold(name, machine), (None, None)]
    return [
        {
            "by": by,
            "last loss": losses[-1].item(),
            "seconds a step": seconds,
            "clock's": clock,
            "bytes": held,
            "ledger's": ledger,
        }
        for by, (losses, held, seconds), (clock, ledger) in zip(
            ("tinydist", "torch"), (run.results[0] for run in found), told
        )
    ]


def on_host(*arguments):
    losses, held, seconds = trained(*arguments)
    return losses.cpu(), held, seconds


def foretold(name, machine):
    """Seconds a step by the clock, and the ledger's peak: of rank 0 alone, the others do the same."""

    def virtual(steps):
        how = machine.config, "cpu", machine.rows, steps
        return tinydist.launch(
            trained, machine.ranks, name, 0, *how, backend="simulated", cluster=machine.cluster, fake=True, only=[0]
        )

    one, two = virtual(1), virtual(2)
    return two.seconds - one.seconds, two.memory[0].peak
