"""Timeouts that a program counts on: they end when no rank can run, the one that ends first alone."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import tinydist
from tinydist.simulator.scheduler import TimedOut

pytestmark = pytest.mark.filterwarnings("error:launch")  # who has waited in vain needs no word of it at the end


def seconds(number):
    return timedelta(seconds=number)


def caught(call):
    """The error's text; None if there was none."""
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return None


def test_who_waits_for_a_rank_that_never_comes_can_go_on():
    def program():
        work = dist.all_reduce(torch.ones(2), async_op=True) if dist.get_rank() == 0 else None
        return work and caught(lambda: work.wait(seconds(3)))

    words = "all_reduce(float32[2], SUM), call 1 on the world of ranks 0-2: Timed out after 3 s; missing: ranks 1-2"
    assert tinydist.launch(program, 3).results == [words, None, None]


def test_the_shortest_ends_first_and_frees_the_others():
    order = []

    def program():
        rank, other = dist.get_rank(), torch.zeros(1)
        if rank == 2:  # waits in vain for 5 s, and then sends what rank 0 waits for, for up to 8
            assert caught(lambda: dist.irecv(other, 1).wait(seconds(5)))
            order.append(rank)
            dist.send(other, 0)
        elif rank == 1:
            assert caught(lambda: dist.irecv(other, 0).wait(seconds(2)))
            order.append(rank)
            assert caught(lambda: dist.irecv(other, 0).wait(seconds(4)))  # 2 + 4 are more than 5
            order.append(rank)
        else:
            dist.irecv(other, 2).wait(seconds(8))
            order.append(rank)

    tinydist.launch(program, 3, observe=False)
    assert order == [1, 2, 0, 1]


def test_a_run_with_a_timeout_has_its_trace():
    def program():
        x = torch.ones(2)
        if dist.get_rank() == 0:
            caught(lambda: dist.irecv(x, 1, tag=7).wait(seconds(1)))
        dist.all_reduce(x)
        return x.tolist()

    run = tinydist.launch(program, 2)
    assert run.results == [[2, 2]] * 2 and run.seconds > 0


def test_a_groups_own_timeout_holds_for_all_its_calls():
    def program():
        dist.init_process_group("gloo", timeout=seconds(5))
        dist.barrier()
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(2))

    with pytest.raises(TimedOut, match=r"all_reduce.*: Timed out after 5 s; missing: rank 1") as caught:
        tinydist.launch(program, 2, init=False)
    assert any("no rank can run: 1 of 2 ranks wait" in note for note in caught.value.__notes__)


def test_torchs_default_timeout_is_no_reason_to_give_up():
    def program():
        dist.new_group(timeout=dist.default_pg_timeout)
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(2))

    with pytest.raises(tinydist.DeadlockError):
        tinydist.launch(program, 2)


def test_the_store_waits_for_a_key_as_long_as_it_is_told():
    def program():
        store = dist.distributed_c10d._get_default_store()
        first = caught(lambda: store.wait(["never"], seconds(1)))
        store.set_timeout(seconds(2))
        return first, caught(lambda: store.get("never"))

    words = "store.wait('never'): Timed out after {} s; no rank has set this key"
    assert tinydist.launch(program, 1).results == [(words.format(1), words.format(2))]


@pytest.mark.parametrize(
    "absent, wait_all_ranks, said", [([1], False, "Rank 1"), ([2, 3], False, "Rank 2"), ([1, 3], True, "Ranks 1, 3")]
)
def test_a_monitored_barrier_names_who_is_missing(absent, wait_all_ranks, said):
    def program():
        group = dist.new_group(backend="gloo")
        if dist.get_rank() not in absent:
            return caught(lambda: dist.monitored_barrier(group, seconds(2), wait_all_ranks))
        return None

    results = tinydist.launch(program, 4).results
    assert results[0] == f"{said} failed to pass monitoredBarrier in 2000 ms"
    for rank in {1, 2, 3} - set(absent):
        assert results[rank].startswith(f"Rank {rank} successfully reached monitoredBarrier, but received errors")


def test_a_monitored_barrier_is_passed_by_all():
    def program():
        dist.monitored_barrier(dist.new_group(backend="gloo"), seconds(2))
        return dist.get_rank()

    assert tinydist.launch(program, 3).results == [0, 1, 2]
