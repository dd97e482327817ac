"""Processes that a script starts are ranks: what they are given, what they share, what they return."""

import multiprocessing

import pytest
import torch.multiprocessing

import tinydist
from tinydist.scripts.spawning import spawn_launches


def test_spawned_processes_import_the_script_and_return_through_a_queue(run):
    ran = run("spawned.py", "x")
    assert ran.status == 0
    spawned = [f"[rank {r}] {r} of 3, call 1, arguments ['x'], gradient 2.0" for r in range(3)]  # mean of 0, 2, 4
    assert sorted(ran.out[:3]) == spawned
    assert ran.out[3] == "0 calls here, losses of ranks [0, 1, 2], the first 0.0"
    assert ran.out[4].startswith("3 simulated ranks: ")


def test_forked_processes_see_the_scripts_variables_and_meet_in_shared_objects(run):
    ran = run("--quiet", "processes.py")
    assert ran.status == 0 and sorted(line.split(" ", 1)[1][:8] for line in ran.out) == ["(0, 7.0)", "(1, 7.0)"]
    assert ran.out[0][:5] == "first" and ran.out[1].endswith("exit codes [0, 0]")


@pytest.mark.parametrize("module", ["torch.multiprocessing", "multiprocessing"])
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_of_a_context(run, module, method):
    lines = """
        import sys, importlib, torch, torch.distributed as dist
        mp = importlib.import_module(sys.argv[1])
        class Worker:
            def __init__(self, rank): self.rank = rank
            def __call__(self):
                dist.init_process_group("gloo", f"tcp://localhost:1", rank=self.rank, world_size=2)
                total = torch.tensor(self.rank + 1)
                dist.all_reduce(total)
                print(total.item(), __name__)
        if __name__ == "__main__":
            context = mp.get_context(sys.argv[2])
            processes = [context.Process(target=Worker(rank)) for rank in range(2)]
            [process.start() for process in processes]
            print([process.is_alive() for process in processes], [process.join() for process in processes])
    """
    ran = run("--quiet", lines=lines, then=[module, method])
    name = "__mp_main__" if method == "spawn" else "__main__"  # as multiprocessing calls it
    assert ran.out == [f"[rank 0] 3 {name}", f"[rank 1] 3 {name}", "[True, True] [None, None]"]


def test_a_subclass_of_process(run):
    lines = """
        from multiprocessing import Process
        class Worker(Process):
            def __init__(self, number):
                super().__init__(name=f"worker {number}")
                self.number = number
            def run(self):
                print(self.name, self.number)
        if __name__ == "__main__":
            workers = [Worker(n) for n in range(2)]
            for each in workers: each.start()
            for each in workers: each.join()
            print([each.exitcode for each in workers])
    """
    assert run("--quiet", lines=lines).out == ["[rank 0] worker 0 0", "[rank 1] worker 1 1", "[0, 0]"]


def test_tensors_are_shared_and_other_arguments_are_copies(run):
    lines = """
        import torch, torch.multiprocessing as mp
        def work(rank, tensor, values, model):
            tensor[rank] += rank + 1
            values.append(rank)
            with torch.no_grad(): model.weight[rank] = rank
            print(values, id(model) == model.number)
        if __name__ == "__main__":
            tensor, values, model = torch.zeros(2), [], torch.nn.Linear(1, 2)
            model.number = id(model)
            mp.spawn(work, (tensor, values, model), nprocs=2)
            print(tensor.tolist(), values, model.weight.flatten().tolist())
    """
    ran = run("--quiet", lines=lines)
    assert ran.out == ["[rank 0] [0] False", "[rank 1] [1] False", "[1.0, 2.0] [] [0.0, 1.0]"]


def test_a_process_that_fails_ends_the_script(run):
    lines = """
        import torch.multiprocessing as mp
        def work(rank):
            if rank == 1:
                raise ValueError("bad")
        if __name__ == "__main__":
            mp.spawn(work, nprocs=2)
            print("never")
    """
    ran = run(lines=lines)
    assert (
        ran.status == 1
        and ran.out == []
        and ran.err[-4].startswith("  root cause: rank 1 (local_rank 1, node 0)") is False
    )
    assert "  root cause: rank 1 (local_rank 1, node 0), exit code 1: ValueError: bad" in ran.err


def test_what_has_no_pickle_cannot_be_spawned(run):
    lines = """
        import torch.multiprocessing as mp
        if __name__ == "__main__":
            mp.spawn(lambda rank: None, nprocs=2)
    """
    ran = run(lines=lines)
    assert ran.status == 1 and any("Can't pickle" in line for line in ran.err)


def test_a_script_without_a_guard_is_told(run):
    lines = """
        import torch.multiprocessing as mp
        def work(rank): pass
        mp.spawn(work, nprocs=2)
    """
    ran = run(lines=lines)
    assert ran.status == 1 and any('if __name__ == "__main__"' in line for line in ran.err)


@pytest.mark.parametrize("name", ["JoinableQueue", "Condition", "Pipe"])
def test_what_ranks_cannot_share_is_refused_by_its_name(run, name):
    ran = run(lines=f"import torch.multiprocessing as mp; mp.{name}()")
    assert ran.status == 1 and any(f"multiprocessing.{name} is not available" in line for line in ran.err)


def test_a_wait_that_can_never_end_is_an_error(run):
    ran = run(lines="import torch.multiprocessing as mp; mp.Queue().get()")
    assert ran.status == 1 and any("Queue.get(): no process is running" in line for line in ran.err)
    lines = """
        import torch.multiprocessing as mp
        def work(rank, queue): queue.get()
        if __name__ == "__main__":
            mp.spawn(work, (mp.Queue(),), nprocs=2)
    """
    ran = run(lines=lines)
    assert ran.status == 1 and any("ranks 0-1 wait in multiprocessing.Queue.get()" in line for line in ran.err)


def test_processes_that_nobody_joins_run_when_the_script_ends(run):
    lines = """
        from multiprocessing import Process
        def work(): print("done")
        if __name__ == "__main__":
            Process(target=work).start()
            print("end")
    """
    assert run("--quiet", lines=lines).out == ["end", "[rank 0] done"]


def test_workers_of_a_data_loader_stay_processes(run):
    lines = """
        import os, torch, torch.multiprocessing as mp
        from torch.utils.data import DataLoader, Dataset
        class Pids(Dataset):
            def __len__(self): return 2
            def __getitem__(self, index): return os.getpid()
        def work(rank):
            print({int(each) != os.getpid() for each in DataLoader(Pids(), num_workers=1)})
        if __name__ == "__main__":
            mp.spawn(work, nprocs=1)
    """
    assert run("--quiet", lines=lines).out == ["[rank 0] {True}"]


ELASTIC = """
    import os, sys, torch, torch.distributed as dist
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch
    def work(factor):
        dist.init_process_group("gloo")
        total = torch.tensor(factor * (dist.get_rank() + 1))
        dist.all_reduce(total)
        return total.item(), os.environ["TORCHELASTIC_RUN_ID"], os.environ["GROUP_RANK"]
    if __name__ == "__main__":
        print(elastic_launch(LaunchConfig(2, 2, 1, run_id="mine", rdzv_endpoint="host:1"), work)(10))
"""


def test_elastic_launch_returns_what_the_ranks_return(run):
    assert run("--quiet", lines=ELASTIC).out == ["{0: (30, 'mine', '0'), 1: (30, 'mine', '1')}"]


def test_torchrun_called_in_a_script(run, tmp_path):
    (tmp_path / "other.py").write_text("import os, sys; print(os.environ['RANK'], sys.argv[1:])")
    lines = """
        import sys
        from torch.distributed.run import main
        main(["--nproc-per-node", "2", *sys.argv[1:]])
        print("end")
    """
    for words in (["other.py", "x"], ["-m", "other", "x"]):
        assert run("--quiet", lines=lines, then=words).out == ["[rank 0] 0 ['x']", "[rank 1] 1 ['x']", "end"]
    ran = run("--quiet", lines=lines, then=["--no-python", "bash", "-c", "true"])
    assert ran.status == 1 and any("simulated ranks run Python programs, got 'bash'" in line for line in ran.err)


def test_multiprocessing_is_as_before():
    def names():
        context = multiprocessing.get_context("spawn")
        return [multiprocessing.Process, multiprocessing.Queue, torch.multiprocessing.spawn, context.Process]

    before, method = names(), multiprocessing.get_start_method(allow_none=True)
    with pytest.raises(KeyError), spawn_launches():
        assert not set(names()) & set(before)
        multiprocessing.set_start_method("spawn", force=True)
        raise KeyError
    assert names() == before and multiprocessing.get_start_method(allow_none=True) == method


def say(rank, words):
    print(words, rank)


def test_without_a_script_spawn_is_a_launch(capsys):
    with spawn_launches():
        torch.multiprocessing.spawn(say, args=("rank",), nprocs=2)
    assert capsys.readouterr().out == "[rank 0] rank 0\n[rank 1] rank 1\n"


def test_a_rank_that_is_alone_may_launch(capsys):
    def program():
        return tinydist.launch(tinydist.launch, 1, lambda: None, 2).results

    assert len(tinydist.launch(program, 1).results) == 1
