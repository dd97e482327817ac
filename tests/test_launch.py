"""The front door: arguments, worlds, and the same script under torchrun."""

import os
import runpy
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

import tinydist

SCRIPT = """
import sys, torch, torch.distributed as dist, tinydist

def add():
    x = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(x)
    return x.item()

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")  # at once: the other rank writes to the same pipe

hook = sys.excepthook
for _ in range(5):
    tinydist.launch(add, ranks=3, cluster="laptop", schedule="shuffle")
run = tinydist.launch(add, ranks=3, timeout=77)
say(f"RESULT {run.backend} {run.results} {sys.excepthook is hook}")

def limit():
    return dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout.total_seconds()

def fail():
    raise KeyError

if run.backend != "simulated":
    say("LIMIT", tinydist.launch(limit, timeout=77).results)
    try:
        tinydist.launch(limit, backend="gloo", fake=True)
    except ValueError as error:
        say("REFUSED", error)
    try:
        tinydist.launch(fail, init=False)
    except KeyError as error:
        say("FAILED", error.__notes__)
"""


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


def test_one_script_serves_a_laptop_and_torchrun(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.split("RESULT ")[1:] == ["simulated [6.0, 6.0, 6.0] True\n"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    joined = subprocess.run(torchrun, capture_output=True, text=True, timeout=120)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    for line in (
        f"RESULT {backend} [3.0, 3.0] True",  # True: sys.excepthook is not wrapped once more by each launch
        "LIMIT [77.0, 77.0]",
        "REFUSED launch: fake: for simulated ranks alone, but backend is 'gloo'",
    ):
        assert joined.stdout.count(line) == 2, joined.stdout + joined.stderr
    assert [f"FAILED ['on rank {rank} of 2']" in joined.stdout for rank in range(2)] == [True, True]


def make_its_own_group():
    dist.init_process_group("gloo")


@pytest.mark.parametrize("backend", ["simulated", "gloo"])
def test_a_program_that_makes_the_group_itself_is_told_how_to_say_so(backend):
    with pytest.raises(ValueError, match="twice") as caught:
        tinydist.launch(make_its_own_group, 1, backend=backend)
    assert caught.value.__notes__[-1] == (
        "launch has made the default process group already: init=False leaves it to the program"
    )
    assert tinydist.launch(make_its_own_group, 1, backend=backend, init=False).results == [None]


def test_ranks_know_their_place_in_the_cluster():
    def place():
        return tuple(int(os.environ[name]) for name in ("GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"))

    assert tinydist.launch(place, 6, cluster="2 x 4").results == [(0, r, 4) for r in range(4)] + [(1, 0, 2), (1, 1, 2)]
