"""A step of a GPT on two gloo processes: DDP, ZeRO stages 1 and 3 beside torch's own, in turns, in one run.

python benchmarks/training_step.py
"""

import statistics
import time
import warnings

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tinydist
from tinydist.data_parallel import DDP
from tinydist.model import GPT, GPTConfig, batch
from tinydist.model.gpt import Block
from tinydist.zero import OptimizerStates, Parameters

ROUNDS, STEPS = 15, 4
CONFIG = GPTConfig(layers=4, heads=4, dim=128)
TARGET, TARGETS = 1.1, {"DDP": 1.05}


class WithLoss(torch.nn.Module):
    """What is wrapped: its output is the loss."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.model = GPT(CONFIG)

    def forward(self, tokens, targets):
        return self.model.loss(tokens, targets)


def with_adam(module):
    return module, torch.optim.AdamW(module.parameters(), lr=1e-3)


def ddp():
    return with_adam(DDP(WithLoss()))


def distributed_data_parallel():
    return with_adam(DistributedDataParallel(WithLoss()))


def ddp_that_looks_for_the_unused():
    return with_adam(DDP(WithLoss(), find_unused=True))


def its_find_unused_parameters():
    return with_adam(DistributedDataParallel(WithLoss(), find_unused_parameters=True))


def stage_1():
    module = WithLoss()
    return module, OptimizerStates(module, torch.optim.AdamW, lr=1e-3)


def zero_redundancy_optimizer():
    with warnings.catch_warnings(action="ignore"):  # it uses torch.jit
        from torch.distributed.optim import ZeroRedundancyOptimizer

        module = DistributedDataParallel(WithLoss(), gradient_as_bucket_view=True)
        return module, ZeroRedundancyOptimizer(module.parameters(), torch.optim.AdamW, lr=1e-3)


def stage_3():
    module = WithLoss()
    return module, Parameters(module, torch.optim.AdamW, units=lambda each: isinstance(each, Block), lr=1e-3)


def torchs_fully_shard():
    module, mesh = WithLoss(), init_device_mesh("cpu", (2,))
    for block in module.model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
    fully_shard(module, mesh=mesh, reshard_after_forward=True)
    return with_adam(module)


PAIRS = {
    "DDP": (ddp, distributed_data_parallel),
    "DDP, find_unused": (ddp_that_looks_for_the_unused, its_find_unused_parameters),
    "stage 1": (stage_1, zero_redundancy_optimizer),
    "stage 3": (stage_3, torchs_fully_shard),
}


def seconds_of(module, optimizer, share):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(STEPS):
        optimizer.zero_grad()
        module(*share).backward()
        optimizer.step()
    dist.barrier()
    return (time.perf_counter() - start) / STEPS


def measure(pair):
    torch.set_num_threads(1)
    share = [tensor.chunk(2)[dist.get_rank()] for tensor in batch(0, 16)]
    rungs = [make() for make in pair]
    times = [[], []]
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            times[which].append(seconds_of(*rungs[which], share))
    return times


def main():
    parameters = sum(p.numel() for p in GPT(CONFIG).parameters())
    print(f"a step of a GPT with {parameters:,} parameters on 2 gloo processes, medians of {ROUNDS - 1} rounds")
    for stage, pair in PAIRS.items():
        ours, theirs = tinydist.launch(measure, 2, pair, backend="gloo").results[0]
        ratios = [a / b for a, b in zip(ours[1:], theirs[1:])]  # the first warms up
        name, target = pair[1].__name__.replace("_", " "), TARGETS.get(stage, TARGET)
        print(f"  {stage:28} {1e3 * statistics.median(ours[1:]):6.1f} ms")
        print(f"  {name:28} {1e3 * statistics.median(theirs[1:]):6.1f} ms")
        print(f"  ratio                        {statistics.median(ratios):6.2f}     (at most {target})")


if __name__ == "__main__":
    main()
