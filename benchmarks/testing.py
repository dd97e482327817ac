"""100 small tests on 4 ranks under the pytest plugin, beside the same tests on spawned gloo processes, in one run.

    python benchmarks/testing.py [--spawned 10]

Both are whole runs of pytest, from a fresh interpreter to its end. On processes each test calls
torch.multiprocessing.spawn, as people write it. Of these only a sample runs, in its turn of each
kind; the time of a test there is scaled to 100.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KINDS = ["all_reduce", "maximum", "broadcast", "all_gather", "scatter", "all_to_all", "ring", "subgroups", "objects"]
KINDS += ["ddp"]
TESTS, TARGET = 100, 20
ROOT = Path(__file__).parent.parent

PROGRAMS = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def of(rank, n):
    return torch.arange(4.0) + rank + n


def all_reduce(rank, n):
    x = of(rank, n)
    dist.all_reduce(x)
    assert torch.equal(x, sum(of(peer, n) for peer in range(4)))


def maximum(rank, n):
    x = of(rank, n)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    assert torch.equal(x, of(3, n))


def broadcast(rank, n):
    x = of(rank, n)
    dist.broadcast(x, n % 4)
    assert torch.equal(x, of(n % 4, n))


def all_gather(rank, n):
    parts = [torch.empty(4) for _ in range(4)]
    dist.all_gather(parts, of(rank, n))
    assert all(torch.equal(part, of(peer, n)) for peer, part in enumerate(parts))


def scatter(rank, n):
    x = torch.empty(4)
    dist.scatter(x, [of(peer, n) for peer in range(4)] if rank == n % 4 else None, n % 4)
    assert torch.equal(x, of(rank, n))


def all_to_all(rank, n):
    out = torch.empty(4)
    dist.all_to_all_single(out, of(rank, n))
    assert out.tolist() == [rank + peer + n for peer in range(4)]


def ring(rank, n):
    x = torch.empty(4)
    for work in dist.batch_isend_irecv([
        dist.P2POp(dist.isend, of(rank, n), (rank + 1) % 4), dist.P2POp(dist.irecv, x, (rank - 1) % 4)
    ]):
        work.wait()
    assert torch.equal(x, of((rank - 1) % 4, n))


def subgroups(rank, n):
    group = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    x = of(rank, n)
    dist.all_reduce(x, group=group)
    assert torch.equal(x, of(rank % 2, n) + of(rank % 2 + 2, n))


def objects(rank, n):
    found = [None] * 4
    dist.all_gather_object(found, {"rank": rank, "n": n})
    assert found == [{"rank": peer, "n": n} for peer in range(4)]


def ddp(rank, n):
    torch.manual_seed(n)
    model = nn.Linear(4, 1)
    wrapped = DistributedDataParallel(model)
    wrapped(of(rank, n)).sum().backward()
    assert torch.allclose(model.weight.grad[0], sum(of(peer, n) for peer in range(4)) / 4)


PROGRAMS = [all_reduce, maximum, broadcast, all_gather, scatter, all_to_all, ring, subgroups, objects, ddp]
"""

ON_RANKS = """
import pytest
from programs import PROGRAMS


@pytest.mark.ranks(4)
@pytest.mark.parametrize("n", range(10))
@pytest.mark.parametrize("program", PROGRAMS)
def test_it(program, n, rank):
    program(rank, n)
"""

SPAWNED = """
import pytest
import torch.distributed as dist
import torch.multiprocessing as mp
from programs import PROGRAMS


def worker(rank, program, n, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=4)
    program(rank, n)
    dist.destroy_process_group()


@pytest.mark.parametrize("n", range(10))
@pytest.mark.parametrize("program", PROGRAMS)
def test_it(program, n, tmp_path):
    mp.spawn(worker, args=(program, n, tmp_path / "store"), nprocs=4)
"""


def seconds(folder, *options):
    """The time of a run of pytest in ``folder``."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    begin = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
    return time.perf_counter() - begin


def main(spawned):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("programs", PROGRAMS), ("test_on_ranks", ON_RANKS), ("test_spawned", SPAWNED)):
            Path(folder, f"{name}.py").write_text(text)
        Path(folder, "pytest.ini").write_text("[pytest]\n")
        ours = seconds(folder, "-p", "tinydist.testing.plugin", "test_on_ranks.py")
        start = seconds(folder, "--collect-only", "test_spawned.py")
        kinds = [(KINDS[number % len(KINDS)], number // len(KINDS)) for number in range(spawned)]
        sample = [f"test_spawned.py::test_it[{kind}-{n}]" for kind, n in kinds]
        one = (seconds(folder, *sample) - start) / spawned
    theirs = start + TESTS * one
    print(f"{TESTS} tests on 4 ranks under the plugin: {ours:.1f} s")
    print(f"{TESTS} on spawned processes, from {spawned} that ran: {theirs:.0f} s, {one:.1f} s each")
    print(f"ratio 1/{theirs / ours:.0f}, target at most 1/{TARGET}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--spawned", type=int, default=10, help="how many of the 100 tests run on processes")
    main(parser.parse_args().spawned)
