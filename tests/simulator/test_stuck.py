"""A rank that keeps the others from running is reported; then all others are gone, and it follows when it can."""

import gc
import threading
import time
import weakref
from collections import deque
from operator import call
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from clock_by_hand import ClockByHand
from torch.distributed import _functional_collectives as functional

import tinydist
from tinydist import StuckError
from tinydist.simulator import stuck
from tinydist.simulator.stuck import Hold


def rank_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("rank ")]


class Native:
    """A call of native code that waits: from one lock to the other no line of Python is run. On its clock, which stands
    in for the module ``time``, seconds pass from then on.
    """

    def __init__(self):
        self.outside, self.closed, self.now = threading.Lock(), threading.Lock(), 0.0
        self.outside.acquire(), self.closed.acquire()

    def wait(self):
        deque(map(call, (self.outside.release, self.closed.acquire)), maxlen=0)

    def set(self):
        self.closed.release()

    def monotonic(self):
        self.now += not self.outside.locked()
        return self.now

    def process_time(self):
        return 0.0


@pytest.fixture
def native(monkeypatch):
    """What native code waits for; in the end it comes, and no rank is left."""
    native = Native()
    monkeypatch.setattr(stuck, "time", native)
    yield native
    if native.closed.locked():
        native.set()
    for thread in rank_threads():
        thread.join(60.0)
    assert rank_threads() == []


def test_while_native_code_keeps_one_rank_the_others_are_gone_and_their_tensors_free(native):
    tensors = {}

    def program():
        rank, mine = dist.get_rank(), torch.ones(8)
        tensors[rank] = weakref.ref(mine)
        if rank == 0:
            return mine
        if rank == 1:
            dist.isend(mine, 3)
        if rank == 3:
            native.wait()
        dist.all_reduce(mine, async_op=True)
        dist.barrier()

    with pytest.raises(StuckError, match=r"rank 3 has held the run lock for 0\.05 s without computing"):
        tinydist.launch(program, 4, timeout=0.05)
    (kept,) = rank_threads()
    gc.collect()
    assert kept.name == "rank 3"
    assert {rank for rank, tensor in tensors.items() if tensor() is not None} == {3}
    assert tinydist.launch(dist.get_rank, 3).results == [0, 1, 2]  # it keeps nobody from going on

    native.set()
    kept.join(60.0)
    gc.collect()
    assert tensors[3]() is None


def test_a_rank_that_native_code_lets_go_late_leaves_the_kernels_groups_alone(native, tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with pytest.raises(StuckError):
            tinydist.launch(native.wait, 1, timeout=0.05)
        (kept,) = rank_threads()
        native.set()
        kept.join(60.0)
        assert functional.all_reduce(torch.ones(1), "sum", dist.group.WORLD).item() == 1.0
    finally:
        dist.destroy_process_group()


def test_with_a_small_timeout_all_ranks_are_stopped(monkeypatch):
    clock = ClockByHand()
    monkeypatch.setattr(stuck, "time", clock)

    def program():
        if dist.get_rank() == 2:
            clock.go_on()
        while dist.get_rank() == 2:
            time.sleep(0.01)
        dist.barrier()

    with pytest.raises(StuckError, match="rank 2"):
        tinydist.launch(program, 4, timeout=0.01)
    assert rank_threads() == []


@pytest.mark.parametrize("prints", [False, True])
def test_a_loop_that_never_ends_is_reported_with_its_line(prints, capsys, monkeypatch):
    monkeypatch.setattr(stuck, "time", SimpleNamespace(monotonic=time.process_time, process_time=time.process_time))

    def program():
        while dist.get_rank() == 1:
            if prints:
                print("still here")

    with pytest.raises(StuckError) as caught:
        tinydist.launch(program, 2, timeout=0.2)
    report = str(caught.value)
    assert caught.value.computes
    assert report.startswith("rank 1 has held the run lock for 0.2 s of computing without communicating")
    assert "test_stuck.py, line" in report.splitlines()[1] and "in program" in report.splitlines()[1]


# How long a rank has held the run lock, on clocks of our own.


class Clocks:
    def __init__(self):
        self.wall = self.processor = 0.0

    def monotonic(self):
        return self.wall

    def process_time(self):
        return self.processor


@pytest.fixture
def passes(monkeypatch):
    """Let time pass for a rank that holds the run lock: what ``Hold`` says then."""
    clocks = Clocks()
    monkeypatch.setattr(stuck, "time", clocks)
    task = SimpleNamespace(rank=0, parked=False, ended=False, thread=threading.current_thread())
    scheduler = SimpleNamespace(running=task, switches=1, is_lent=False)
    hold = Hold(scheduler, idle_timeout=60.0, cpu_timeout=100.0)
    hold.check()

    def passes(seconds, at_work=0.0, then=lambda task, scheduler: None):
        """``at_work``: the part of it in which the processor works for us."""
        for _ in range(round(seconds)):
            clocks.wall += 1.0
            clocks.processor += at_work
            then(task, scheduler)
            hold.check()

    return passes


def test_doing_nothing_is_reported_at_the_idle_timeout(passes):
    passes(60)
    with pytest.raises(StuckError, match="60 s without computing or communicating"):
        passes(1)


def test_computing_is_reported_at_its_limit_on_the_processors_clock(passes):
    passes(200, at_work=0.5)
    with pytest.raises(StuckError, match="100 s of computing without communicating"):
        passes(1, at_work=0.5)


@pytest.mark.parametrize("at_work", [0.0, 1.0])
def test_who_waits_for_ranks_that_it_has_launched_is_never_reported(passes, at_work):
    passes(200, at_work, then=lambda task, scheduler: vars(scheduler).update(is_lent=True))


@pytest.mark.parametrize("at_work", [0.0, 1.0])
def test_who_communicates_is_never_reported(passes, at_work):
    def communicate(task, scheduler):
        scheduler.switches += 1

    passes(1000, at_work, communicate)


@pytest.mark.parametrize("at_work", [0.0, 1.0])
def test_who_waits_or_has_ended_is_never_reported(passes, at_work):
    def wait(task, scheduler):
        task.parked = True

    def end(task, scheduler):
        task.parked, task.ended = False, True

    passes(1000, at_work, wait)
    passes(1000, at_work, end)


@pytest.mark.parametrize("at_work", [0.0, 1.0])
def test_loading_modules_is_never_reported(passes, at_work, monkeypatch):
    monkeypatch.setattr(stuck, "importing", lambda thread: True)
    passes(1000, at_work)
