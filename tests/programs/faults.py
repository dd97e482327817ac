"""Programs that go wrong, by name."""

import os
import sys

import torch
import torch.distributed as dist


def hang(rank):
    dist.barrier()
    if rank == 0:
        dist.all_reduce(torch.ones(2))  # evaluates alone


def forgets(rank):
    if rank == 0:
        dist.all_reduce(torch.ones(2), async_op=True)


def mismatch(rank):
    dist.all_reduce(torch.ones(2 + rank))


def fails(rank):
    dist.barrier()
    if rank == 1:
        check([rank])
    dist.barrier()


def check(values):
    raise ValueError(f"bad values\n{values}")


def exits(rank):
    if rank == 1:
        sys.exit(3)
    dist.barrier()


def says(rank):
    if rank == 1:
        sys.exit("rank 1 has no data")
    dist.barrier()


def leaves(rank):
    dist.barrier()
    sys.exit(0)


def kills(rank):
    dist.barrier()
    os._exit(4)


def straggles(rank):
    for _ in range(3):
        if rank == 2:
            torch.ones(512, 512) @ torch.ones(512, 512)
        dist.all_reduce(torch.ones(2))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
