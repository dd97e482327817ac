"""The same program twice: the same results to the last bit, the same prints and virtual times, in the same order."""

import gc
import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import tinydist

ROOT = Path(__file__).resolve().parents[2]


def program():
    """Some of everything whose order could vary: groups, messages, objects, random numbers, prints."""
    rank, size = dist.get_rank(), dist.get_world_size()
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    groups = [dist.new_group(ranks) for ranks in ([0, 1], [1, 2, 3], [0, 3])]
    data = torch.randn(4, 8) * (rank + 0.1)
    for step in range(3):
        model(data).square().mean().backward()
        works = [dist.all_reduce(weight.grad, async_op=True) for weight in model.parameters()]
        token = torch.rand(1)
        sending = dist.isend(token, (rank + 1) % size, tag=step)
        received = torch.zeros(1)
        dist.recv(received, (rank - 1) % size, tag=step)
        print(f"step {step}: {received.item()}")
        for group in groups:
            if dist.get_rank(group) >= 0:
                dist.all_reduce(data, dist.ReduceOp.AVG, group=group)
        for work in [*works, sending]:
            work.wait()
        names = [None] * size
        dist.all_gather_object(names, {f"rank {rank}", f"step {step}"})
        print(rank, [sorted(name) for name in names])
    return [data, *(weight.grad for weight in model.parameters())]


def digest(results):
    """Every bit of them."""
    seen = hashlib.sha256()
    for tensors in results:
        for tensor in tensors:
            seen.update(tensor.detach().numpy().tobytes())
    return seen.hexdigest()


SCHEDULES = [{}, {"schedule": "shuffle", "seed": 3}]


@pytest.mark.parametrize("how", SCHEDULES, ids=["fifo", "shuffle"])
def test_twice_the_same(how, capsys):
    runs = []
    for _ in range(2):
        results = tinydist.launch(program, 4, **how).results
        runs.append((digest(results), capsys.readouterr()))
    assert runs[0] == runs[1]
    assert runs[0][1].out.count("\n") == 24


def test_twice_the_same_with_garbage_collection_and_other_threads_about(capsys):
    want = digest(tinydist.launch(program, 4).results), capsys.readouterr().out
    done = threading.Event()

    def disturb():
        while not done.wait(0.01):
            gc.collect(0)

    other = threading.Thread(target=disturb)
    other.start()
    try:
        assert (digest(tinydist.launch(program, 4).results), capsys.readouterr().out) == want
    finally:
        done.set()
        other.join()


def times():
    """All that virtual time says of a program with some of everything in it."""
    run = tinydist.launch(of_everything, 4, cluster="2 x 4")
    shuffled = tinydist.launch(of_everything, 4, cluster="2 x 4", schedule="shuffle", seed=5)
    said = [
        [[tuple(event)[:5] for event in r.trace.events], r.traffic, [list(m) for m in r.memory], r.seconds]
        for r in (run, shuffled)
    ]
    assert said[0] == said[1]
    return repr(said[0])


def of_everything():
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    ddp = DDP(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)), bucket_cap_mb=1e-4)
    optimizer = torch.optim.AdamW(ddp.parameters())
    pairs = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3], [1, 2])]
    for step in range(2):
        ddp(torch.randn(4 + rank, 8)).square().mean().backward()
        optimizer.step()
        for pair in pairs:
            if dist.get_rank(pair) >= 0:
                dist.all_reduce(torch.ones(rank + 100)[:100], group=pair)
        sending = dist.isend(torch.ones(rank + 1), (rank + 1) % size, tag=step)
        dist.recv(torch.empty((rank - 1) % size + 1), (rank - 1) % size, tag=step)
        sending.wait()
        dist.all_gather_object([None] * size, {"rank": rank})


def print_all():
    for how in SCHEDULES:
        print(digest(tinydist.launch(program, 4, **how).results), flush=True)
    print(times(), flush=True)


# The process ends at once: torch 2.12 may abort it, as it tidies up, if a thread has run backward.
IN_A_FRESH_PROCESS = """
import os, sys
sys.path[:0] = {paths}
import test_determinism
test_determinism.print_all()
os._exit(0)
"""


def test_the_same_in_a_fresh_process_with_other_hashes(capsys):
    print_all()
    here = capsys.readouterr().out
    assert here.count("\n") == 51  # 2 schedules: 24 lines of ranks and a digest; virtual times
    code = IN_A_FRESH_PROCESS.format(paths=[str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)])
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    fresh = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (fresh.stdout, fresh.stderr) == (here, "")


# Order dependences.


def first_come():
    """Rank 0 takes messages as they come: its sum depends on the order."""
    total = torch.zeros(1)
    if dist.get_rank() > 0:
        dist.send(torch.tensor([float(dist.get_rank())]), 0)
    else:
        for _ in range(dist.get_world_size() - 1):
            x = torch.zeros(1)
            dist.recv(x)
            total = total * 10 + x
    return total.item()


def test_fifo_hides_an_order_dependence():
    assert {tinydist.launch(first_come, 4, seed=seed).results[0] for seed in range(5)} == {123.0}


def test_shuffle_finds_it_and_the_seed_replays_it():
    by_seed = {seed: tinydist.launch(first_come, 4, seed=seed, schedule="shuffle").results[0] for seed in range(30)}
    assert len(set(by_seed.values())) >= 4
    for seed, total in by_seed.items():
        assert tinydist.launch(first_come, 4, seed=seed, schedule="shuffle").results[0] == total


def reads_too_early():
    """A race on the store: rank 1 reads without waiting for rank 0 to have written."""
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 0:
        dist.barrier(dist.new_group([0], use_local_synchronization=True))
        store.set("ready", "yes")
    else:
        return store.check(["ready"])


def test_shuffle_finds_a_race_on_the_store():
    found = {tinydist.launch(reads_too_early, 2, seed=seed, schedule="shuffle").results[1] for seed in range(30)}
    assert found == {True, False}


def test_shuffle_finds_a_buffer_that_is_used_before_its_wait():
    def used_too_early():
        x = torch.ones(1)
        work = dist.all_reduce(x, async_op=True)
        early = x.item()
        work.wait()
        return early

    found = {tuple(tinydist.launch(used_too_early, 2, seed=s, schedule="shuffle").results) for s in range(30)}
    assert found == {(1.0, 2.0), (2.0, 1.0)}


def test_a_deadlock_that_only_some_orders_have():
    def program():
        """Rank 0 answers whoever comes first, and rank 1 hopes that it is rank 1."""
        x, rank = torch.zeros(1), dist.get_rank()
        if rank == 0:
            first = dist.recv(x)
            dist.recv(x)
            dist.send(x, first)
        else:
            dist.send(x, 0)
        if rank == 1:
            dist.recv(x, 0)

    outcomes = {}
    for seed in range(30):
        try:
            tinydist.launch(program, 3, seed=seed, schedule="shuffle")
            outcomes[seed] = "runs"
        except RuntimeError as error:
            outcomes[seed] = str(error)
    assert len(set(outcomes.values())) == 2
    bad = next(seed for seed, outcome in outcomes.items() if outcome != "runs")
    with pytest.raises(RuntimeError) as caught:
        tinydist.launch(program, 3, seed=bad, schedule="shuffle")
    assert str(caught.value) == outcomes[bad]


def test_the_schedule_does_not_touch_the_ranks_random_numbers():
    def draws():
        dist.barrier()
        return torch.rand(3).tolist()

    assert tinydist.launch(draws, 3, seed=7, schedule="shuffle").results == tinydist.launch(draws, 3, seed=7).results
