"""The front door: arguments, worlds, and the same script under torchrun."""

import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

import tinydist

SCRIPT = """
import torch, torch.distributed as dist, tinydist

def add():
    x = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(x)
    return x.item()

run = tinydist.launch(add, ranks=3)
print(f"RESULT {run.backend} {run.results}")
"""


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"ranks": 0}, "ranks must be a whole number from 1, got 0"),
        ({"ranks": -1}, "ranks must be a whole number from 1, got -1"),
        ({"ranks": 2.5}, r"ranks must be a whole number from 1, got 2\.5"),
        ({"ranks": 2, "backend": "mpi"}, "backend must be one of simulated, gloo, nccl, got 'mpi'"),
        ({"ranks": 2, "schedule": "lifo"}, "schedule must be 'fifo' or 'shuffle', got 'lifo'"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        tinydist.launch(dist.get_rank, **arguments)


def test_arguments_are_handed_on_and_results_come_by_rank():
    run = tinydist.launch(lambda a, b: (a, b, dist.get_rank()), 3, "x", 2)
    assert run.results == [("x", 2, 0), ("x", 2, 1), ("x", 2, 2)]
    assert repr(run) == "<3 simulated ranks ran>"


def test_a_rank_cannot_launch_ranks():
    with pytest.raises(RuntimeError, match="a rank cannot launch ranks of its own"):
        tinydist.launch(lambda: tinydist.launch(dist.get_rank, 2), 2)


def test_the_environment_chooses_the_default_backend(monkeypatch):
    monkeypatch.setenv("TINYDIST_BACKEND", "gloo")
    assert tinydist.launch(os.getpid, 1).results != [os.getpid()]
    assert tinydist.launch(os.getpid, 1, backend="simulated").results == [os.getpid()]


def test_the_kernels_own_process_group_lives_on(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mine = dist.group.WORLD
        assert tinydist.launch(dist.get_world_size, 3).results == [3, 3, 3]
        assert dist.group.WORLD is mine
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x == 1 and dist.get_backend() == "gloo"
    finally:
        dist.destroy_process_group()


def test_one_script_serves_a_laptop_and_torchrun(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    alone = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert alone.stdout.split("RESULT ")[1:] == ["simulated [6.0, 6.0, 6.0]\n"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    joined = subprocess.run(torchrun, capture_output=True, text=True, check=True)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    assert joined.stdout.count(f"RESULT {backend} [3.0, 3.0]") == 2


def test_ranks_know_their_place_in_the_cluster():
    def place():
        return tuple(int(os.environ[name]) for name in ("GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"))

    assert tinydist.launch(place, 6, cluster="2 x 4").results == [(0, r, 4) for r in range(4)] + [(1, 0, 2), (1, 1, 2)]
