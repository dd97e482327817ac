"""torch.profiler on simulated ranks: what each rank did, from one session for all."""

import json

import pytest
import torch
import torch.distributed as dist
from torch.autograd.profiler import profile as older_profile
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import ProfilerActivity, profile, record_function, schedule

import tinydist

CPU = [ProfilerActivity.CPU]


def steps(profiler):
    """The names that the ranks gave their steps, with how often each was met."""
    return {each.key: each.count for each in profiler.key_averages() if each.key.startswith("step of")}


@pytest.mark.parametrize("profiler", [older_profile, lambda: profile(activities=CPU)])
@pytest.mark.parametrize("observe", [True, False])
def test_each_rank_has_its_own_events(profiler, observe):
    def program():
        rank = dist.get_rank()
        alone = [dist.new_group([each]) for each in range(4)][rank]
        with profiler() as found:
            for _ in range(1 + rank):
                with record_function(f"step of {rank}"):
                    dist.all_reduce(torch.ones(4), group=alone)
            dist.all_reduce(torch.ones(4))
        return steps(found)

    run = tinydist.launch(program, 4, observe=observe)
    assert run.results == [{f"step of {rank}": 1 + rank} for rank in range(4)]


def test_moving_data_between_ranks_is_no_ranks_work():
    def program():
        tensor = torch.ones(4)
        with profile(activities=CPU) as found:
            dist.all_reduce(tensor)
        return "aten::add" in {event.name for event in found.events()}

    assert tinydist.launch(program, 3).results == [False] * 3


def test_one_rank_can_profile_alone():
    def program():
        if dist.get_rank() == 1:
            with profile(activities=CPU) as found:
                dist.barrier()
                torch.ones(2) * 3
            return [event.name for event in found.events()].count("aten::mul")
        torch.ones(2) * 3
        dist.barrier()
        torch.ones(2) * 3
        return None

    assert tinydist.launch(program, 3, observe=False).results == [None, 1, None]


def test_a_schedule_of_steps_with_stacks_and_shapes_in_ddp(tmp_path):
    def program():
        rank, ready = dist.get_rank(), []
        model = DDP(torch.nn.Linear(4, 4))
        with profile(
            activities=CPU,
            schedule=schedule(wait=1, warmup=1, active=1, repeat=2),
            on_trace_ready=lambda found: ready.append(steps(found)),
            record_shapes=True,
            with_stack=True,
        ) as found:
            for _ in range(6):
                with record_function(f"step of {rank}"):
                    model(torch.ones(2, 4)).sum().backward()
                found.step()
        found.export_chrome_trace(str(tmp_path / f"{rank}.json"))
        return ready

    assert tinydist.launch(program, 3).results == [[{f"step of {rank}": 1}] * 2 for rank in range(3)]
    for rank in range(3):  # each has saved what all ranks did
        trace = json.loads((tmp_path / f"{rank}.json").read_text())["traceEvents"]
        threads = {event["tid"]: event["args"]["name"] for event in trace if event["name"] == "thread_name"}
        assert sorted(threads.values()) == ["rank 0", "rank 1", "rank 2"]
        for event in trace:
            if event["name"].startswith("step of"):
                assert event["name"].removeprefix("step of") == threads[event["tid"]].removeprefix("rank")


def test_results_that_never_come_are_a_deadlock():
    def program():
        found = profile(activities=CPU)
        found.start()
        dist.barrier()
        if dist.get_rank() == 0:
            found.stop()
            found.events()  # rank 1 is still to stop, and waits
        dist.barrier()
        found.stop()

    with pytest.raises(
        tinydist.DeadlockError, match=r"results of its profiler\n    which ranks \[1\] have not stopped"
    ):
        tinydist.launch(program, 2)


def test_a_profiler_that_is_never_stopped_ends_with_the_run():
    def program():
        profile(activities=CPU).start()

    for _ in range(2):
        tinydist.launch(program, 2)
    with profile(activities=CPU) as found:  # the kernel has it again
        torch.ones(2) * 3
    assert "aten::mul" in {event.name for event in found.events()}


def test_results_can_be_read_after_the_run():
    def program():
        with profile(activities=CPU) as found:
            torch.ones(2) * 3
        return found

    results = tinydist.launch(program, 2, observe=False).results
    assert [[event.name for event in found.events()].count("aten::mul") for found in results] == [1, 1]


def test_a_rank_has_one_profiler_at_a_time():
    def program():
        with profile(activities=CPU), profile(activities=CPU):
            pass

    with pytest.raises(RuntimeError, match="profiler on rank 0: it is already running, and a rank can have only one"):
        tinydist.launch(program, 2)


def test_the_kernel_and_its_ranks_do_not_profile_at_once():
    def program():
        with profile(activities=CPU):
            pass

    with profile(activities=CPU), pytest.raises(RuntimeError, match="one already runs around launch"):
        tinydist.launch(program, 2)


def test_an_error_within_a_profile_is_the_programs_own():
    def program():
        with profile(activities=CPU):
            dist.barrier()
            raise KeyError(dist.get_rank())

    with pytest.raises(KeyError, match="0"):
        tinydist.launch(program, 3)
