"""Where a program reads a number of the GPU, its CPU waits, and launches what follows then."""

import math
import time

import pytest
import torch
import torch.distributed as dist
from tracing.simple_cluster import PRODUCT, RANKS, ROWS, WIDTH, WIRE

import tinydist
from tinydist.hardware import Cluster, Device

LAUNCH = 1e-6  # a product takes 39 of them
FOLLOWING = 10  # kernels
CLUSTER = Cluster(Device("toy", {"float32": 1e10}, 1e12, math.inf, LAUNCH, True), RANKS, WIRE)

WAITS = {
    "item": lambda y: y[0, 0].item(),
    "float": lambda y: float(y.sum()),
    "bool": lambda y: bool(y[0, 0] > 1),
    "cpu": lambda y: y.cpu(),
    "to": lambda y: y.to("cpu"),
    "copy_": lambda y: torch.empty(y.shape, device="cpu").copy_(y),
    "to the GPU": lambda y: torch.ones(2, device="cpu").to("cuda"),
    "tensor": lambda y: torch.tensor(3.0, device="cuda"),
    "tolist": lambda y: y.tolist(),
    "numpy": lambda y: y.numpy(force=True),
    "print": repr,
    "mask": lambda y: y[y > 0],
    "nonzero": lambda y: y.nonzero(),
    "equal": lambda y: torch.equal(y, y),
    "barrier": lambda y: dist.barrier(),
    "synchronize": lambda y: torch.cuda.synchronize(),
    "stream": lambda y: torch.cuda.current_stream().synchronize(),
    "event": lambda y: torch.cuda.Event().record().synchronize(),
}
GOES_ON = {
    "nothing": lambda y: None,
    "shape": lambda y: y.shape,
    "non_blocking": lambda y: y.to("cpu", non_blocking=True),
    "cuda": lambda y: torch.ones(2, device="cpu").cuda(non_blocking=True),
    "copy_": lambda y: torch.empty(y.shape, device="cpu").copy_(y, non_blocking=True),
    "index": lambda y: y[torch.arange(2, device="cuda")],
    "the past": lambda y: EARLY.synchronize(),
    "all_reduce": dist.all_reduce,
}


def small(x, count=FOLLOWING):
    for _ in range(count):
        x + 1


def on_toy(program, ranks=1, **options):
    return tinydist.launch(program, ranks, gpus=True, cluster=CLUSTER, **options)


def between_launches(read):
    """From one kernel to the next, after a long one and ``read(its result)``."""

    def program():
        global EARLY
        x, w = torch.ones(ROWS, WIDTH, device="cuda"), torch.ones(WIDTH, WIDTH, device="cuda")
        EARLY = torch.cuda.Event().record()
        read(x @ w)
        small(w)

    *_, before, last = (event for event in on_toy(program).trace.events if event.name == "add")
    return last.end - before.end


@pytest.mark.parametrize("name", WAITS)
def test_the_cpu_waits(name):
    assert between_launches(WAITS[name]) == pytest.approx(LAUNCH)


@pytest.mark.parametrize("name", GOES_ON)
def test_the_cpu_goes_on(name):
    assert between_launches(GOES_ON[name]) < 0.1 * LAUNCH


def product():
    return torch.ones(ROWS, WIDTH, device="cuda") @ torch.ones(WIDTH, WIDTH, device="cuda")


def test_a_collective_that_follows_is_issued_later():
    def program(reads):
        y = product()
        if reads:
            y[0, 0].item()
        small(y)
        dist.all_reduce(y)

    with_read, without = (on_toy(lambda reads=reads: program(reads), 2).trace for reads in (True, False))
    late, early = (next(e.issued for e in trace.of(1) if e.name == "all_reduce") for trace in (with_read, without))
    assert late - early == pytest.approx(FOLLOWING * LAUNCH, rel=0.1)
    assert late == pytest.approx(PRODUCT + (3 + FOLLOWING) * LAUNCH, rel=0.05)


def test_events_and_the_clock_of_a_run_that_is_under_way_see_it():
    def program(reads):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        y = product()
        if reads:
            y.sum().item()
        small(y)
        end.record()
        return begin.elapsed_time(end)

    with_read, without = (on_toy(lambda reads=reads: program(reads)) for reads in (True, False))
    assert with_read.results[0] - without.results[0] == pytest.approx(1e3 * FOLLOWING * LAUNCH, rel=0.2)
    for run in with_read, without:
        assert run.results[0] == pytest.approx(1e3 * run.seconds)


def test_a_clock_that_is_read_after_a_wait_for_another_stream():
    def program(waits):
        began, side = time.perf_counter(), torch.cuda.Stream()
        with torch.cuda.stream(side):
            product()
        if waits:
            side.synchronize()
        return time.perf_counter() - began

    waited, went_on = (on_toy(lambda waits=waits: program(waits), fake=True).results[0] for waits in (True, False))
    assert waited == pytest.approx(PRODUCT + 3 * LAUNCH, rel=1e-3) and went_on < LAUNCH


@pytest.mark.parametrize("order", ["before", "after"])
def test_what_is_launched_on_another_stream_after_a_wait_starts_after_it(order):
    """Whether that stream was used before or not."""

    def program():
        side = torch.cuda.Stream()
        x = torch.ones(4, device="cuda")
        if order == "before":
            with torch.cuda.stream(side):
                x - 1
        product().cpu()
        with torch.cuda.stream(side):
            x * 2

    run = on_toy(program)
    (copied,), (aside,) = ([e for e in run.trace.events if e.name == name] for name in ("to host", "mul"))
    assert aside.end == pytest.approx(copied.end + LAUNCH)
    assert run.seconds == pytest.approx(aside.end)


def test_synchronize_waits_for_all_streams():
    def program():
        side, x = torch.cuda.Stream(), torch.ones(4, device="cuda")
        with torch.cuda.stream(side):
            product()
        torch.cuda.synchronize()
        x * 2

    trace = on_toy(program).trace
    (multiplied,), (long,) = ([e for e in trace.events if e.name == name] for name in ("mul", "mm"))
    assert multiplied.end == pytest.approx(long.end + LAUNCH)


def test_a_forecast_waits_where_the_numbers_would():
    def program():
        y = product()
        y.sum().item()
        small(y)

    real, fake = (on_toy(program, fake=fake).seconds for fake in (False, True))
    assert fake == pytest.approx(real, rel=0.05)


def test_a_cpu_that_does_not_run_ahead_has_nothing_to_wait_for():
    slow = Cluster(Device("toy", {"float32": 1e10}, 1e12, math.inf, LAUNCH, False), RANKS, WIRE)

    def program(reads):
        y = product()
        if reads:
            torch.cuda.synchronize()
        small(y)

    with_read, without = (on_toy(lambda reads=reads: program(reads)).on(slow).seconds for reads in (True, False))
    assert with_read == without
