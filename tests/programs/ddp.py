"""DDP under torchrun, as most people write it: settings in a dataclass, arguments, a log on each rank."""

import argparse
import logging
import os
import pickle
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger(__name__)


@dataclass
class Settings:
    steps: int = 2
    lr: float = 0.1


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 8, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True))


def train(settings, device):
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.lr)
    sampler = DistributedSampler(data())
    for epoch in range(settings.steps):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data(), batch_size=8, sampler=sampler):
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        log.info("epoch %d loss %.6f", epoch, loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2)
    settings = pickle.loads(pickle.dumps(Settings(**vars(parser.parse_args()))))
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format="%(message)s")
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    train(settings, device)
    if rank == 0:
        print("settings", asdict(settings))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
