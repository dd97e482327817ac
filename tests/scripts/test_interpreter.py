"""What each rank has of its own in the interpreter, and what all ranks share."""

import sys

import pytest


def test_a_module_of_the_scripts_folder_is_each_ranks_own(run, tmp_path):
    (tmp_path / "counter.py").write_text("count = 0\n")
    lines = """
        import sys, torch.distributed as dist, counter, fractions
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        for step in range(3):
            dist.barrier()
            counter.count += rank
            assert sys.modules["counter"] is counter
            import counter as again
            assert again is counter
        found = [None] * 2
        dist.all_gather_object(found, (counter.count, id(counter), id(fractions)))
        print([count for count, *_ in found], len({module for _, module, _ in found}), len({f for *_, f in found}))
    """
    assert run("--nproc-per-node", 2, "--quiet", lines=lines).out == [f"[rank {r}] [0, 3] 2 1" for r in range(2)]


def test_objects_of_the_scripts_classes_travel_between_ranks_and_through_files(run, tmp_path):
    (tmp_path / "shapes.py").write_text("from dataclasses import dataclass\n@dataclass\nclass Box:\n    n: int\n")
    lines = """
        import torch, torch.distributed as dist
        from dataclasses import dataclass
        from shapes import Box
        @dataclass
        class Mine:
            box: Box
        dist.init_process_group("gloo")
        found = [None] * 2
        dist.all_gather_object(found, Mine(Box(dist.get_rank())))
        assert all(type(each) is Mine and type(each.box) is Box for each in found)
        if dist.get_rank() == 0:
            torch.save(found, "found.pt")
        dist.barrier()
        assert torch.load("found.pt", weights_only=False) == found == [Mine(Box(0)), Mine(Box(1))]
        print("same")
    """
    assert run("--nproc-per-node", 2, "--quiet", lines=lines).out == ["[rank 0] same", "[rank 1] same"]


def test_argv_the_path_and_the_folder_are_each_ranks_own(run, tmp_path):
    lines = """
        import os, sys, torch.distributed as dist
        dist.init_process_group("gloo")
        rank = str(dist.get_rank())
        os.makedirs(rank, exist_ok=True)
        os.chdir(rank), sys.argv.append(rank), sys.path.append(rank)
        dist.barrier()
        print(os.path.basename(os.getcwd()), sys.argv, sys.path[-1], os.path.basename(sys.path[0]))
    """
    ran = run("--nproc-per-node", 2, "--quiet", lines=lines)
    assert ran.out == [f"[rank {r}] {r} ['script.py', '{r}'] {r} {tmp_path.name}" for r in range(2)]


def test_each_rank_configures_its_own_log(run):
    lines = """
        import logging, torch.distributed as dist
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        logging.basicConfig(level=logging.INFO if rank == 0 else logging.ERROR, format=f"{rank} %(name)s %(message)s")
        mine, torchs = logging.getLogger("mine"), logging.getLogger("torch.distributed")
        mine.addHandler(logging.StreamHandler())
        dist.barrier()
        assert len(mine.handlers) == 1 and mine.isEnabledFor(logging.INFO) == (rank == 0)
        mine.info("info"), mine.error("error")
        print(id(mine), id(torchs))
    """
    ran = run("--nproc-per-node", 2, "--quiet", lines=lines)
    mine, torchs = zip(*(line.split()[2:] for line in ran.out))
    assert len(set(mine)) == 2 and len(set(torchs)) == 1
    first = [f"[rank 0] {line}" for line in ("info", "0 mine info", "error", "0 mine error")]
    assert ran.err == [*first, "[rank 1] error", "[rank 1] 1 mine error"]


def test_ranks_in_the_middle_of_an_import_do_not_wait_for_one_another(run, tmp_path):
    """Each imports a package whose modules import one another, and communicates in the innermost."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "__init__.py").write_text("from . import outer\n")
    (tmp_path / "deep" / "outer.py").write_text("from .inner import total\n")
    (tmp_path / "deep" / "inner.py").write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.ones(1)\n"
        "for _ in range(3):\n    dist.all_reduce(total)\n"
    )
    ran = run("--nproc-per-node", 4, "--quiet", lines="import deep; print(deep.outer.total.item())")
    assert ran.out == [f"[rank {r}] 64.0" for r in range(4)]


def test_a_rank_that_fails_in_an_import_leaves_no_lock(run, tmp_path):
    (tmp_path / "fails.py").write_text("import torch.distributed as dist\ndist.barrier()\nraise ValueError('no')\n")
    lines = "import torch.distributed as dist; dist.init_process_group('gloo'); import fails"
    for _ in range(2):
        ran = run("--nproc-per-node", 2, lines=lines)
        assert ran.status == 1 and "[rank 0] ValueError: no" in ran.err and "fails" not in sys.modules


def test_atexit_is_called_at_the_end_of_the_rank_in_reverse_order(run):
    lines = """
        import atexit, sys, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        atexit.register(dist.destroy_process_group)
        @atexit.register
        def last_words():
            print("sum", dist.get_world_size())
        atexit.register(print, "never")
        atexit.unregister(print)
        sys.exit(0)
    """
    assert run("--nproc-per-node", 2, "--quiet", lines=lines).out == ["[rank 0] sum 2", "[rank 1] sum 2"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_modules_that_are_named_main(run, ranks):
    lines = """
        import inspect, pickle, sys, __main__
        class Thing: pass
        def main(): return 1
        assert sys.modules["__main__"] is __main__ and __main__.Thing is Thing
        assert type(pickle.loads(pickle.dumps(Thing()))) is Thing
        assert inspect.getsource(main) == "def main(): return 1\\n" and __spec__ is None
        print(__file__)
    """
    ran = run("--nproc-per-node", ranks, "--quiet", lines=lines)
    assert ran.status == 0, ran.err
    assert len(ran.out) == ranks and all(line.endswith("/script.py") for line in ran.out)
