"""What it costs to watch a run: the ledger and the clock's record beside torch's MemTracker, measured in one run.

    python benchmarks/ledger.py [--quick] [--before FOLDER]

Medians, of microseconds an operator on top of a run that nobody watches, on the processor's clock. The target is a
multiple of a lower bound: a dispatch mode that does nothing. calls.py counts what is the same on every machine.
Then the virtual time of many operators and messages, and a training step of a GPT of 7.5 billion parameters, fake, on
one of 64 ranks: seconds and resident memory of a process of its own.

``--before``: only what watching costs, in five pairs of runs, of an earlier tinydist in FOLDER and of this one in turn
(``git worktree add FOLDER COMMIT``).
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._python_dispatch import TorchDispatchMode

import tinydist
from tinydist.model import GPT, GPTConfig

BIG = GPTConfig(vocab_size=50257, context=1024, layers=36, heads=32, dim=4096)


class Nothing(TorchDispatchMode):
    """The floor: every operator passes through Python."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


# Programs: seconds an operator.


def products(times=2000):
    x = torch.ones(8, 8)
    begin = time.thread_time()
    for _ in range(times):
        x @ x
    return (time.thread_time() - begin) / times


def sums(times=2000):
    x = torch.ones(8, 8)
    begin = time.thread_time()
    for _ in range(times):
        x + x
    return (time.thread_time() - begin) / times


class Counting(Nothing):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def step():
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    tokens = torch.zeros(1, 16, dtype=torch.long)
    model.loss(tokens, tokens).backward()
    optimizer.step()


def operators_of(program):
    with Counting() as mode:
        program()
    return mode.count


def steps():
    begin = time.thread_time()
    step()
    return (time.thread_time() - begin) / operators_of(step)


# Watchers.


def under(mode, program):
    with mode():
        return program()


WATCHERS = {
    "nobody": lambda program: tinydist.launch(program, 1, observe=False).results[0],
    "a mode that does nothing": lambda program: tinydist.launch(under, 1, Nothing, program, observe=False).results[0],
    "observe=True": lambda program: tinydist.launch(program, 1).results[0],
    "torch's MemTracker": lambda program: tinydist.launch(under, 1, MemTracker, program, observe=False).results[0],
}


PROGRAMS = (products, sums, steps)


def medians(program, watchers, times):
    samples = {name: [] for name in watchers}
    for _ in range(times):  # in turn, so that all see the same noise
        for name in watchers:
            samples[name].append(WATCHERS[name](program) * 1e6)
    return [statistics.median(each) for each in samples.values()]


def ledger(times):
    print(f"{'us an operator':28}" + "".join(f"{name:>26}" for name in WATCHERS))
    for program in PROGRAMS:
        alone, floor, ours, theirs = medians(program, WATCHERS, times)
        print(
            f"{program.__name__:28}{alone:26.1f}{floor - alone:+26.1f}{ours - alone:+26.1f}{theirs - alone:+26.1f}"
            f"  ({(theirs - alone) / (ours - alone):.1f}x ours; {(ours - alone) / (floor - alone):.1f} modes, "
            "target 4)",
            flush=True,
        )


def once(times):
    """What watching costs, for ``compare``."""
    return [ours - alone for alone, ours in (medians(each, ("nobody", "observe=True"), times) for each in PROGRAMS)]


def compare(folder, pairs=5):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = {"before": [], "now": []}
    for _ in range(pairs):
        for name, path in (("before", os.path.abspath(folder)), ("now", here)):
            run = [sys.executable, __file__, "--once"]
            output = subprocess.run(run, env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True)
            found[name].append(json.loads(output.stdout))
    for number, program in enumerate(PROGRAMS):
        before, now = ([run[number] for run in runs] for runs in found.values())
        change = statistics.median(now) - statistics.median(before)
        print(
            f"{program.__name__:10} before {statistics.median(before):5.1f}, now {statistics.median(now):5.1f}: "
            f"{change:+.1f} us an operator (at most +2.0 for names); pairs: "
            + ", ".join(f"{b:.1f} {n:.1f}" for b, n in zip(before, now, strict=True))
        )


def clock(operators=100_000, messages=10_000):
    def program():
        x, peer = torch.ones(1), 1 - dist.get_rank()
        for _ in range(operators // 2):
            x += 1
        for _ in range(messages // 2):
            for work in (dist.isend(x, peer), dist.irecv(torch.empty(1), peer)):
                work.wait()

    run = tinydist.launch(program, 2)
    begin = time.perf_counter()
    events = len(run.trace.events)
    print(f"virtual time of {operators} operators and {messages} messages, {events} events: "
          f"{time.perf_counter() - begin:.1f} s")  # fmt: skip


def big():
    def program():
        model = GPT(BIG)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        tokens = torch.zeros(1, BIG.context, dtype=torch.long)
        model.loss(tokens, tokens).backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad)
        optimizer.step()

    begin = time.perf_counter()
    run = tinydist.launch(program, 64, fake=True, only=[0])
    peak, virtual = run.memory[0].peak, run.seconds
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(
        f"a step of 7.5 billion parameters on one of 64 ranks: {time.perf_counter() - begin:.1f} s (target 15), "
        f"{resident / 1e9:.2f} GB resident (target 1); simulated: {peak / 1e9:.1f} GB, {virtual:.2f} s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--big", action="store_true", help="the big step alone, in this process")
    parser.add_argument("--once", action="store_true", help="what watching costs, as a list in JSON")
    parser.add_argument("--before", metavar="FOLDER", help="an earlier tinydist, to compare with")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.big:
        big()
    elif options.once:
        print(json.dumps(once(9)))
    elif options.before:
        compare(options.before)
    else:
        print(f"torch {torch.__version__}, {os.cpu_count()} processors")
        ledger(3 if options.quick else 9)
        clock()
        subprocess.run([sys.executable, __file__, "--big"], check=True)
