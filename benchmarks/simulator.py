"""Simulated ranks beside gloo processes and torch's own threaded test group, measured in one run.

    python benchmarks/simulator.py [--quick]

Medians, of runs that are not observed (ledger.py measures what observing costs). Machines differ, so each target is a
multiple of a lower bound measured in the same run: the time to hand a lock from one bare Python thread to the next, to
add and copy the tensors of an all-reduce alone, or to encode a trace as JSON; the memory of a bare thread that has made
one tensor. calls.py counts what is the same on every machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.multi_threaded_pg import _install_threaded_pg, _uninstall_threaded_pg

import tinydist
from tinydist import processes

KILO, MEGA = 1000, 1 << 20  # floats


def median(measure, times):
    return statistics.median(measure() for _ in range(times))


# What is measured: each gives seconds (or bytes).


def nothing():
    pass


def start(ranks, launch):
    begin = time.perf_counter()
    launch(nothing, ranks)
    return time.perf_counter() - begin


def all_reduces(floats, times):
    x = torch.ones(floats)
    for _ in range(3):
        dist.all_reduce(x)
    begin = time.perf_counter()
    for _ in range(times):
        dist.all_reduce(x)
    return (time.perf_counter() - begin) / times


def all_reduce(ranks, floats, launch, times):
    return max(launch(all_reduces, ranks, floats, times))


def deadlock(ranks):
    last = [0.0]

    def program():
        if dist.get_rank():
            last[0] = time.perf_counter()
            dist.barrier()

    try:
        tinydist.launch(program, ranks, observe=False)
    except tinydist.DeadlockError:
        return time.perf_counter() - last[0]


def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def idle_rank(ranks):
    """Bytes a simulated rank adds to this process, while all wait."""

    def program():
        dist.barrier()
        return resident()

    tinydist.launch(nothing, 2, observe=False)  # which loads what all launches share
    before = resident()
    return (max(tinydist.launch(program, ranks, observe=False).results) - before) / ranks


def idle_thread(threads):
    """Bytes that a bare thread adds which has made one tensor: its stack, and what torch keeps for each thread."""
    made, end = threading.Barrier(threads + 1), threading.Event()

    def live():
        torch.ones(1)
        made.wait()
        end.wait()

    before = resident()
    waiting = [threading.Thread(target=live) for _ in range(threads)]
    for thread in waiting:
        thread.start()
    made.wait()
    added = resident() - before
    end.set()
    for thread in waiting:
        thread.join()
    return added / threads


# The ways to run ranks.


def simulated(fn, ranks, *args):
    return tinydist.launch(fn, ranks, *args, observe=False).results


def gloo(fn, ranks, *args):
    return processes.run(fn, ranks, args)


def threaded(fn, ranks, *args):
    """The process group that torch's own tests use: a thread a rank, all at once."""
    _install_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    store, results = dist.HashStore(), [None] * ranks

    def live(rank):
        dist.init_process_group("threaded", rank=rank, world_size=ranks, store=store)
        results[rank] = fn(*args)
        dist.destroy_process_group()

    threads = [threading.Thread(target=live, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch._C._distributed_c10d._set_thread_isolation_mode(False)
    _uninstall_threaded_pg()
    return results


def quiet(measure):
    """``measure(1024)``, in a process in which nothing else has happened."""
    program = f"import simulator, torch; torch.set_num_threads(1); print(simulator.{measure.__name__}(1024))"
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join([here, os.path.dirname(here), os.environ.get("PYTHONPATH", "")])
    run = [sys.executable, "-c", program]
    return float(subprocess.run(run, env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True).stdout)


def thread_switch(threads=8, rounds=500):
    """Seconds to hand a lock to the next of ``threads`` bare threads."""
    locks = [threading.Lock() for _ in range(threads)]
    for lock in locks:
        lock.acquire()

    def live(index):
        for _ in range(rounds):
            locks[index].acquire()
            locks[(index + 1) % threads].release()

    ring = [threading.Thread(target=live, args=(index,)) for index in range(threads)]
    for thread in ring:
        thread.start()
    begin = time.perf_counter()
    locks[0].release()
    for thread in ring:
        thread.join()
    return (time.perf_counter() - begin) / threads / rounds


def sums_and_copies(ranks, floats):
    """Seconds to add up the tensors of all ranks, and to copy the sum to each."""
    tensors = [torch.ones(floats) for _ in range(ranks)]
    total = torch.empty(floats)

    def once():
        begin = time.perf_counter()
        torch.add(tensors[0], tensors[1], out=total)
        for tensor in tensors[2:]:
            torch.add(total, tensor, out=total)
        for tensor in tensors:
            tensor.copy_(total)
        return time.perf_counter() - begin

    return median(once, 9)


def traced(collectives):
    """Seconds for the trace of so many observed all-reduces of two ranks, and to save it; and to encode it alone."""
    run = tinydist.launch(all_reduces, 2, 10, collectives - 3)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        run.trace.save(path)
        ours = time.perf_counter() - begin
        with open(path) as file:
            entries = json.load(file)
    begin = time.perf_counter()
    json.dumps(entries)
    return ours, time.perf_counter() - begin


# The table.


def row(what, target, ours, peers, scale, unit):
    """``target``: in the units of ``ours``."""
    cells = [f"{ours * scale:9.1f}", f"{target * scale:7.1f}", f"{ours / target:5.2f}"]
    cells += [f"{peer * scale:9.1f} ({peer / ours:6.1f}x)" if peer else " " * 19 for peer in peers]
    print(f"{what:38} {unit:5}" + "  ".join(cells), flush=True)


def main(quick):
    times = 3 if quick else 7
    torch.set_num_threads(1)
    thread = quiet(idle_thread)  # in processes of their own: what one leaves, the other would take
    idle = quiet(idle_rank)
    switch = median(thread_switch, 9)
    print(f"torch {torch.__version__}, {os.cpu_count()} processors, thread switch {switch * 1e6:.1f} us")
    print(f"{'':44}{'simulated':>9}  {'target':>7}  {'ratio':>5}  {'gloo processes':>18}  {'threaded test group':>19}")
    cold = start(8, gloo)  # the first time, its processes are started
    for ranks, switches in ((8, 1000), (64, 5000), (1024, 40_000)):
        peers = (cold if ranks == 8 else None, median(lambda: start(ranks, threaded), 3) if ranks == 8 else None)
        ours = median(lambda: start(ranks, simulated), times)
        row(f"start {ranks} ranks", switches * switch, ours, peers, 1e3, "ms")
    for ranks, switches in ((8, 2), (64, 2.5), (256, 3.5), (1024, 4)):
        calls = 20 if ranks > 64 else 200
        ours = median(lambda: all_reduce(ranks, KILO, simulated, calls), times) / ranks
        theirs = median(lambda: all_reduce(ranks, KILO, gloo, calls), 3) / ranks if ranks == 8 else None
        threads = median(lambda: all_reduce(ranks, KILO, threaded, 20), 3) / ranks if ranks <= 64 else None
        row(f"all_reduce of 1k floats, a rank, {ranks}", switches * switch, ours, (theirs, threads), 1e6, "us")
    for ranks in (8, 64):
        alone = sums_and_copies(ranks, MEGA)
        ours = median(lambda: all_reduce(ranks, MEGA, simulated, 5), times)
        theirs = median(lambda: all_reduce(ranks, MEGA, gloo, 5), 3) if ranks == 8 else None
        row(f"all_reduce of 1M floats, {ranks} ranks", 1.3 * alone, ours, (theirs, None), 1e3, "ms")
    row("an idle rank holds", 2 * thread, idle, (min(gloo(resident, 2)), None), 1e-3, "kB")
    for ranks, switches in ((3, 500), (1024, 50_000)):
        ours = median(lambda: deadlock(ranks), times)
        row(f"deadlock reported, {ranks} ranks", switches * switch, ours, (None, None), 1e3, "ms")
    ours, encoding = traced(100_000)
    row("trace of 100,000 collectives, saved", 5 * encoding, ours, (None, None), 1, "s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    main(parser.parse_args().quick)
