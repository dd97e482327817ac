"""Many launches in one process, of programs that end well and badly: each ends as it must, and leaves nothing."""

import gc
import os
import random
import threading

import pytest
import torch
import torch.distributed as dist

import tinydist
from tinydist.simulator.deadlock import DeadlockError
from tinydist.simulator.matching import MismatchError


def sums(rank, ranks):
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    return total.item()


def fails(rank, ranks):
    dist.barrier()
    if rank == ranks - 1:
        raise ZeroDivisionError
    dist.barrier()


def hangs(rank, ranks):
    if rank == 0:
        dist.recv(torch.empty(1), ranks - 1)


def disagrees(rank, ranks):
    dist.all_reduce(torch.zeros(2 + (rank == 0)))


def makes_groups(rank, ranks):
    group = dist.new_group(list(range(ranks)))
    dist.all_reduce(torch.zeros(1), group=group, async_op=True).wait()


ENDS = {sums: None, makes_groups: None, fails: ZeroDivisionError, hangs: DeadlockError, disagrees: MismatchError}


def one(number):
    draw = random.Random(number)
    program, ranks = draw.choice(list(ENDS)), draw.randint(2, 6)

    def rank_program():
        return program(dist.get_rank(), ranks)

    how = {"observe": draw.choice([True, False, "communication"])}
    if ENDS[program] is None:
        results = tinydist.launch(rank_program, ranks, **how).results
        assert program is makes_groups or list(results) == [ranks * (ranks + 1) / 2] * ranks
    else:
        with pytest.raises(ENDS[program]):
            tinydist.launch(rank_program, ranks, **how)


def left():
    gc.collect()
    files = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    tensors = sum(isinstance(each, torch.Tensor) for each in gc.get_objects())
    return threading.active_count(), files, tensors


@pytest.mark.parametrize("count", [50, pytest.param(5000, marks=pytest.mark.exhaustive)])
def test_each_ends_as_it_must_and_leaves_nothing(count):
    for number in range(20):
        one(number)
    before = left()
    for number in range(20, count):
        one(number)
    assert all(after <= at_first for after, at_first in zip(left(), before)), (left(), before)
