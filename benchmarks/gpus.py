"""What pretended GPUs cost: a numeric training step with and without them, measured in one run.

    python benchmarks/gpus.py [--quick]

A small GPT on 2 ranks, with DDP and AdamW; both launches are observed. The target is a ratio, since machines differ.
Steps of the two alternate, launch by launch, and the fastest of each counts: what else the machine does only adds.
"""

import argparse
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

import tinydist
from tinydist.model import GPT, GPTConfig

CONFIG = GPTConfig(vocab_size=256, context=64, layers=4, heads=4, dim=256)
RANKS, BATCH = 2, 4
MOST = 1.10  # times as long, with pretended GPUs


def step_seconds(steps):
    """Of the fastest step of a rank, of all ranks in turn."""
    device = torch.device("cuda", dist.get_rank()) if torch.cuda.is_available() else torch.device("cpu")
    model = DDP(GPT(CONFIG).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    tokens = torch.randint(CONFIG.vocab_size, (BATCH, CONFIG.context), device=device)
    seconds = []
    for _ in range(steps):
        dist.barrier()
        began = time.perf_counter()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def measured(gpus, steps):
    return max(tinydist.launch(step_seconds, RANKS, steps, gpus=gpus).results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    steps, rounds = (3, 2) if parser.parse_args().quick else (10, 5)
    torch.set_num_threads(1)
    host, gpus = (
        min(times) for times in zip(*[(measured(False, steps), measured(True, steps)) for _ in range(rounds)])
    )
    print(f"step without  {host * 1e3:6.1f} ms")
    print(f"step with     {gpus * 1e3:6.1f} ms    {gpus / host:.3f} times as long (target: at most {MOST})")


if __name__ == "__main__":
    main()
