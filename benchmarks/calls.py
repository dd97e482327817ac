"""What ranks cost in calls of Python functions, and in bytes of Python objects: the same on every machine.

    python benchmarks/calls.py

Seconds differ from machine to machine by more than a change of the library makes. Calls do not, so a test holds them to
their targets each time (tests/simulator/test_calls.py). Only functions of tinydist count: what torch and Python do
themselves differs from version to version.
"""

import os
import sys
import threading
import tracemalloc

import torch
import torch.distributed as dist

import tinydist

OURS = os.path.dirname(tinydist.__file__) + os.sep
ROUNDS = 20


class Counting:
    """Calls in this thread, while it lasts."""

    def __init__(self):
        self.count = 0

    def __enter__(self):
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _note(self, frame, event, argument):
        self.count += event == "call" and frame.f_code.co_filename.startswith(OURS)


def calls_of(prepare, ranks, observe):
    """By a rank and a round of what ``prepare()`` gives."""

    def program():
        act = prepare()
        act()  # what is done once
        with Counting() as counting:
            for _ in range(ROUNDS):
                act()
        return counting.count

    return sum(tinydist.launch(program, ranks, observe=observe).results) / ranks / ROUNDS


def all_reduce():
    x = torch.ones(1000)
    return lambda: dist.all_reduce(x)


def message():
    x, rank = torch.ones(1000), dist.get_rank()
    return lambda: dist.send(x, rank + 1) if rank % 2 == 0 else dist.recv(x, rank - 1)


def product():
    x = torch.ones(8, 8)
    return lambda: x @ x


def addition():
    x = torch.ones(8, 8)
    return lambda: x + x


def launched(ranks=8):
    """Calls of a launch, in all of its threads, a rank."""
    tinydist.launch(int, ranks, observe=False)
    with Counting() as counting:
        threading.setprofile(counting._note)
        try:
            tinydist.launch(int, ranks, observe=False)
        finally:
            threading.setprofile(None)
    return counting.count / ranks


def idle_bytes(ranks=64):
    """Of Python objects, a rank that waits."""

    def program():
        dist.barrier()
        return tracemalloc.get_traced_memory()[0]

    tinydist.launch(program, ranks, observe=False)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        return (max(tinydist.launch(program, ranks, observe=False).results) - before) / ranks
    finally:
        tracemalloc.stop()


COSTS = {  # what -> (how much, at most)
    "calls of an all_reduce, a rank of 8": (lambda: calls_of(all_reduce, 8, observe=False), 40),
    "the same, observed": (lambda: calls_of(all_reduce, 8, observe=True), 55),
    "calls of a message, one side": (lambda: calls_of(message, 2, observe=False), 35),
    "calls of an observed product": (lambda: calls_of(product, 1, observe=True), 16),
    "calls of an observed addition": (lambda: calls_of(addition, 1, observe=True), 12),
    "calls of a launch, a rank of 8": (launched, 90),
    "bytes of Python objects of an idle rank": (idle_bytes, 22_000),
}


def measured(what):
    measure, _ = COSTS[what]
    return measure()


if __name__ == "__main__":
    torch.set_num_threads(1)
    for what, (_, most) in COSTS.items():
        print(f"{what:42}{measured(what):10,.1f}   at most {most:,}", flush=True)
