"""The front door: arguments and worlds."""

import os

import pytest
import torch
import torch.distributed as dist

import tinydist


def test_arguments_are_handed_on_and_results_come_by_rank():
    run = tinydist.launch(lambda a, b: (a, b, dist.get_rank()), 3, "x", 2)
    assert run.results == [("x", 2, 0), ("x", 2, 1), ("x", 2, 2)]
    assert repr(run) == "<3 simulated ranks ran>"


def test_a_rank_cannot_launch_ranks():
    with pytest.raises(RuntimeError, match=r"nested launch\(\) is not supported"):
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


def test_communication_alone_is_what_it_is_beside_all_else():
    def program():
        x = torch.full((100, 100), float(dist.get_rank()))
        for _ in range(3):
            x = x @ x
            dist.all_reduce(x)
            dist.broadcast(x[0].clone(), src=1)
        return x.sum().item()

    cluster = tinydist.hardware.find_cluster("A100 node").communication_alone
    whole, part = (tinydist.launch(program, 3, cluster=cluster, observe=how) for how in (True, "communication"))
    assert part.results == whole.results and part.traffic == whole.traffic and part.seconds == whole.seconds
    assert whole.memory[0].peak > 0
    with pytest.raises(RuntimeError, match='observe="communication": memory was not recorded'):
        _ = part.memory
