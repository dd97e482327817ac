"""A step of a GPT on two gloo processes: our DDP beside torch's own, in turns, in one run.

python benchmarks/ddp.py
"""

import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tinydist
from tinydist.data_parallel import DDP
from tinydist.model import GPT, GPTConfig, batch

ROUNDS, STEPS = 15, 4
CONFIG = GPTConfig(layers=4, heads=4, dim=128)
TARGET = 1.1


class WithLoss(torch.nn.Module):
    """What is wrapped: its output is the loss."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.model = GPT(CONFIG)

    def forward(self, tokens, targets):
        return self.model.loss(tokens, targets)


def seconds_of(model, optimizer, share):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(*share).backward()
        optimizer.step()
    dist.barrier()
    return (time.perf_counter() - start) / STEPS


def measure():
    torch.set_num_threads(1)
    share = [tensor.chunk(2)[dist.get_rank()] for tensor in batch(0, 16)]
    models = [DDP(WithLoss()), DistributedDataParallel(WithLoss())]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    times = [[], []]
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            times[which].append(seconds_of(models[which], optimizers[which], share))
    return times


def main():
    ours, theirs = tinydist.launch(measure, 2, backend="gloo").results[0]
    ratios = [a / b for a, b in zip(ours[1:], theirs[1:])]  # the first warms up
    parameters = sum(p.numel() for p in GPT(CONFIG).parameters())
    print(f"a step of a GPT with {parameters:,} parameters on 2 gloo processes, medians of {ROUNDS - 1} rounds")
    print(f"  tinydist.data_parallel.DDP    {1e3 * statistics.median(ours[1:]):6.1f} ms")
    print(f"  torch's own                   {1e3 * statistics.median(theirs[1:]):6.1f} ms")
    print(f"  ratio                         {statistics.median(ratios):6.2f}     (at most {TARGET})")


if __name__ == "__main__":
    main()
