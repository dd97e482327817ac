"""The scheduler alone: ranks are functions that wait for events. No torch here."""

import _thread
import random
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from clock_by_hand import ClockByHand, ToldAtOnce, until

from tinydist.simulator import scheduler as scheduler_module
from tinydist.simulator import stuck
from tinydist.simulator.scheduler import Abort, RankScheduler, Waitable
from tinydist.simulator.stuck import StuckError
from tinydist.simulator.supervisor import Supervisor


class Deadlock(Exception):
    """What the tests have the scheduler raise when no rank can run."""


def explain(tasks):
    return Deadlock([(task.rank, "ended" if task.ended else task.event) for task in tasks])


def run(body, size, *, seed=None, idle_timeout=60.0, explain=explain):
    """Results of ``body(rank, scheduler)`` by rank."""
    chance = None if seed is None else random.Random(seed)
    scheduler = RankScheduler(range(size), enter=lambda rank: None, leave=lambda rank: None, random=chance)
    return Supervisor(scheduler, explain=explain, idle_timeout=idle_timeout).run(lambda rank: body(rank, scheduler))


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")] == []


@pytest.fixture(autouse=True)
def no_thread_dies_of_an_exception(monkeypatch):
    died = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    yield
    assert died == []


@pytest.fixture
def told_at_once(monkeypatch):
    monkeypatch.setattr(scheduler_module, "queue", SimpleNamespace(SimpleQueue=ToldAtOnce))


# Order.


def test_results_are_by_rank():
    assert run(lambda rank, scheduler: rank * rank, 5) == [0, 1, 4, 9, 16]


def test_a_rank_runs_until_it_waits():
    log = []

    def body(rank, scheduler):
        log.append((rank, "starts"))
        log.append((rank, "goes on"))

    run(body, 3)
    assert log == [(rank, what) for rank in range(3) for what in ("starts", "goes on")]


def test_first_come_first_served():
    log = []

    def body(rank, scheduler):
        for step in range(3):
            log.append((step, rank))
            scheduler.pause()

    run(body, 4)
    assert log == [(step, rank) for step in range(3) for rank in range(4)]


def test_those_who_wait_go_on_in_the_order_in_which_they_came():
    log, event, arrival = [], Waitable(), {0: 2, 1: 0, 2: 1, 3: 3}  # rank -> how often it pauses before it waits

    def body(rank, scheduler):
        for _ in range(arrival[rank]):
            scheduler.pause()
        if rank == 3:
            scheduler.set(event)
        else:
            scheduler.wait(event)
            log.append(rank)

    run(body, 4)
    assert log == [1, 2, 0]


def test_who_waits_for_an_event_that_is_done_keeps_the_run_lock():
    log, event = [], Waitable()

    def body(rank, scheduler):
        if rank == 0:
            scheduler.set(event)
        log.append(rank)
        scheduler.wait(event)
        log.append(rank)

    run(body, 2)
    assert log == [0, 0, 1, 1]


def test_an_event_that_is_done_stays_done():
    event = Waitable()

    def body(rank, scheduler):
        scheduler.set(event)
        scheduler.wait(event)
        scheduler.wait(event)
        return event.done

    assert run(body, 1) == [True]


def test_one_rank_at_a_time_between_enter_and_leave():
    log = []
    scheduler = RankScheduler(
        range(3),
        enter=lambda rank: log.append(("enter", rank)),
        leave=lambda rank: log.append(("leave", rank)),
        random=None,
    )

    def body(rank):
        for _ in range(rank):
            scheduler.pause()

    Supervisor(scheduler, explain=explain).run(body)
    assert [what for what, _ in log] == ["enter", "leave"] * (len(log) // 2)
    assert all(entered == left for (_, entered), (_, left) in zip(log[::2], log[1::2]))
    assert {rank for _, rank in log} == {0, 1, 2}


def test_a_run_switches_only_where_a_rank_waits_or_ends():
    scheduler = RankScheduler(range(3), enter=lambda rank: None, leave=lambda rank: None)
    Supervisor(scheduler, explain=explain).run(lambda rank: [scheduler.pause() for _ in range(2)])
    assert scheduler.switches == 9  # 3 ranks: each is given the run lock at first and after 2 pauses


# A random order.


def order(seed):
    log = []

    def body(rank, scheduler):
        scheduler.pause()
        log.append(rank)

    run(body, 3, seed=seed)
    return tuple(log)


def test_a_seed_replays_its_order():
    assert [order(seed) for seed in range(20)] == [order(seed) for seed in range(20)]


def test_seeds_find_every_order():
    assert len({order(seed) for seed in range(100)}) == 6


def test_in_a_random_order_others_may_go_first_where_a_rank_communicates():
    def goes_on_at_once(seed):
        log = []

        def body(rank, scheduler):
            log.append(rank)
            scheduler.issue()
            log.append(rank)

        run(body, 2, seed=seed)
        return log[0] == log[1]

    assert {goes_on_at_once(seed) for seed in range(20)} == {True, False}


# Deadlocks.


def test_a_deadlock_is_known_at_once(told_at_once):
    never = Waitable()
    with pytest.raises(Deadlock):
        run(lambda rank, scheduler: scheduler.wait(never), 3)


def test_a_deadlock_is_explained_by_who_waits_and_who_ended():
    events = [Waitable(), None, Waitable()]

    def body(rank, scheduler):
        if rank != 1:
            scheduler.wait(events[rank])

    with pytest.raises(Deadlock) as caught:
        run(body, 3)
    assert caught.value.args[0] == [(0, events[0]), (1, "ended"), (2, events[2])]


def test_a_deadlock_when_the_last_rank_that_could_run_ends():
    never = Waitable()

    def body(rank, scheduler):
        if rank == 0:
            scheduler.wait(never)
        scheduler.pause()

    with pytest.raises(Deadlock) as caught:
        run(body, 2)
    assert caught.value.args[0] == [(0, never), (1, "ended")]


def test_a_deadlock_of_a_single_rank():
    with pytest.raises(Deadlock):
        run(lambda rank, scheduler: scheduler.wait(Waitable()), 1)


def test_polling_that_never_ends_is_found(monkeypatch):
    monkeypatch.setattr(scheduler_module, "POLL_SECONDS", 0.0)
    never = Waitable()

    def body(rank, scheduler):
        if rank == 0:
            scheduler.wait(never)
        while True:
            scheduler.pause()

    with pytest.raises(Deadlock) as caught:
        run(body, 3)
    assert caught.value.args[0] == [(0, never), (1, None), (2, None)]


def test_polling_a_rank_that_is_long_at_work_is_no_deadlock(monkeypatch):
    clock = ClockByHand()
    monkeypatch.setattr(scheduler_module, "time", clock)
    event = Waitable()

    def body(rank, scheduler):
        if rank == 0:
            while not event.done:
                scheduler.pause()
            return "seen"
        clock.a_day_passes(computing=True)
        scheduler.set(event)

    assert run(body, 2) == ["seen", None]


# Failures.


def test_the_first_failure_is_raised_and_names_its_rank():
    def body(rank, scheduler):
        scheduler.pause()
        if rank in (1, 2):
            raise ValueError(f"from {rank}")
        scheduler.wait(Waitable())

    with pytest.raises(ValueError, match="from 1") as caught:
        run(body, 4)
    assert caught.value.__notes__ == ["on rank 1 of 4"]


def test_ranks_that_are_stopped_run_their_finally_blocks():
    log = []

    def body(rank, scheduler):
        try:
            if rank == 2:
                raise ValueError
            scheduler.wait(Waitable())
        finally:
            log.append(rank)

    with pytest.raises(ValueError):
        run(body, 4)
    assert sorted(log) == [0, 1, 2]  # rank 3 had not begun


def test_no_except_exception_holds_up_the_end():
    log = []

    def body(rank, scheduler):
        if rank == 1:
            raise ValueError
        while True:
            try:
                scheduler.wait(Waitable())
            except Exception:
                log.append("swallowed")

    with pytest.raises(ValueError):
        run(body, 2)
    assert log == []


def test_a_rank_that_catches_everything_is_stopped_where_it_waits_next():
    stops = []

    def body(rank, scheduler):
        if rank == 1:
            raise ValueError
        for _ in range(3):
            try:
                scheduler.wait(Waitable())
            except BaseException as stop:
                stops.append(type(stop))

    with pytest.raises(ValueError):
        run(body, 2)
    assert stops == [Abort] * 3


def test_ranks_that_are_stopped_do_not_communicate_any_more():
    def body(rank, scheduler):
        if rank == 1:
            raise ValueError
        try:
            scheduler.wait(Waitable())
        finally:
            scheduler.wait(Waitable())
            pytest.fail("waited for an event that never comes")

    with pytest.raises(ValueError):
        run(body, 2)


def test_what_a_rank_raises_while_it_is_stopped_does_not_hide_the_failure():
    def body(rank, scheduler):
        if rank == 1:
            raise ValueError("the cause")
        try:
            scheduler.wait(Waitable())
        finally:
            raise KeyError("the consequence")

    with pytest.raises(ValueError, match="the cause"):
        run(body, 2)


# Interrupts. A signal reaches the main thread, which supervises, wherever that is.


def run_interruptibly(body, size):
    scheduler = RankScheduler(range(size), enter=lambda rank: None, leave=lambda rank: None)
    supervisor = Supervisor(scheduler, explain=explain)
    with supervisor.interruptible():
        return supervisor.run(lambda rank: body(rank, scheduler))


def test_an_interrupt_stops_a_rank_that_computes():
    log = []

    def body(rank, scheduler):
        _thread.interrupt_main()
        try:
            while True:
                pass
        finally:
            log.append(rank)

    with pytest.raises(KeyboardInterrupt) as caught:
        run_interruptibly(body, 2)
    assert log == [0]
    (note,) = caught.value.__notes__
    assert note.startswith("rank 0 was running\n  at ") and "test_scheduler.py, line" in note


def test_a_second_interrupt_leaves_no_rank_behind():
    log = []

    def body(rank, scheduler):
        if rank == 0:
            scheduler.wait(Waitable())
        try:
            _thread.interrupt_main()
            while True:
                pass
        finally:
            log.append(rank)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            until(lambda: not scheduler.notices.empty())

    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(body, 3)
    assert log == [1]


def test_an_interrupt_lets_what_is_being_imported_come_whole(tmp_path, monkeypatch):
    (tmp_path / "slow_to_load.py").write_text(
        "import _thread, threading\n"
        "_thread.interrupt_main()\n"
        "while not threading.current_thread().scheduler.aborting:\n"
        "    pass\n"
        "whole = sum(range(1_000_000))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def body(rank, scheduler):
        threading.current_thread().scheduler = scheduler
        import slow_to_load  # noqa: F401

        while True:
            pass

    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(body, 2)
    assert sys.modules.pop("slow_to_load").whole


def test_an_interrupt_while_a_notice_is_carried_out():
    log = []

    def notice():
        _thread.interrupt_main()
        log.append("carried out")

    def body(rank, scheduler):
        scheduler.notices.put(notice)
        scheduler.wait(Waitable()) if rank else None
        while True:
            pass

    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(body, 2)
    assert log == ["carried out"]


def test_an_interrupt_that_comes_when_all_have_ended_is_not_lost():
    scheduler = RankScheduler(range(2), enter=lambda rank: None, leave=lambda rank: None)
    tidied = False
    with pytest.raises(KeyboardInterrupt):
        supervisor = Supervisor(scheduler, explain=explain)
        with supervisor.interruptible():
            assert supervisor.run(lambda rank: rank) == [0, 1]
            _thread.interrupt_main()
            tidied = True
    assert tidied


def test_afterwards_interrupts_are_as_before():
    run_interruptibly(lambda rank, scheduler: rank, 2)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_run_in_another_thread_leaves_interrupts_alone():
    results = []
    thread = threading.Thread(
        target=lambda: results.extend(run_interruptibly(lambda rank, scheduler: signal.getsignal(signal.SIGINT), 1))
    )
    thread.start()
    thread.join()
    assert results == [signal.default_int_handler]


def test_what_else_handles_interrupts_goes_on_to():
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert run_interruptibly(lambda rank, scheduler: signal.getsignal(signal.SIGINT), 1) == [signal.SIG_IGN]
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_the_next_run_is_not_disturbed():
    for size in (1, 2, 8, 2) * 20:
        assert run(lambda rank, scheduler: scheduler.pause(), size) == [None] * size


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("size", [1, 8, 64])
def test_threads_that_are_about_to_end_are_left_in_peace(size):
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # the supervisor goes on before the last ranks have quite ended
    try:
        for _ in range(2000 // size):
            run(lambda rank, scheduler: None, size)
    finally:
        sys.setswitchinterval(switch)


# What is no rank, and what keeps the others waiting.


@pytest.mark.parametrize("call", ["wait", "pause", "issue"])
def test_a_thread_that_a_rank_starts_is_refused(call):
    def body(rank, scheduler):
        errors = []

        def help_out():
            try:
                getattr(scheduler, call)(*([Waitable()] if call == "wait" else []))
            except RuntimeError as error:
                errors.append(str(error))

        helper = threading.Thread(target=help_out, name="my helper")
        helper.start()
        helper.join()
        return errors

    (message,) = run(body, 2)[1]
    assert "thread 'my helper' is not a rank" in message


def test_a_rank_asleep_is_reported_with_its_stack(monkeypatch):
    clock = ClockByHand()
    monkeypatch.setattr(stuck, "time", clock)

    def body(rank, scheduler):
        if rank == 0:
            scheduler.wait(Waitable())
        clock.go_on()
        while True:
            time.sleep(0.05)  # neither computes nor communicates

    with pytest.raises(StuckError, match=r"rank 1 has held the run lock for 0\.5 s") as caught:
        run(body, 2, idle_timeout=0.5)
    assert "time.sleep(0.05)  # neither computes nor communicates" in str(caught.value)


def test_a_rank_at_work_is_not_reported(monkeypatch):
    clock = ClockByHand()
    monkeypatch.setattr(stuck, "time", clock)

    def body(rank, scheduler):
        for _ in range(3):
            clock.go_on(computing=True)
        return "done"

    assert run(body, 1, idle_timeout=0.5) == ["done"]
