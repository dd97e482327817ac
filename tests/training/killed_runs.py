"""In a process of its own: runs whose ranks are killed, at any moment; and others that go on from what is left.

    python killed_runs.py FOLDER KILLS SEED       a line of JSON for each kill

A rank kills itself at a random line of Python of what trains and saves, in any of its threads; then the others are
killed, too, as torchrun does it. All runs of odd numbers have dropout.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from training.small_runs import gpt, losses, made

import tinydist
from tinydist.checkpoint import consensus, files, rules, save_load
from tinydist.training import Plan, checkpoint, engine, saver
from tinydist.training.checkpoint import load
from tinydist.training.saver import Saver

TRACED = [checkpoint, engine, saver, save_load, files, rules, consensus]
PLANS = [Plan(tp=2), Plan(dp=2, zero=3), Plan(pp=2, microbatches=2), Plan(dp=2, zero=1)]
RANKS, STEPS, EVERY, NEVER = 2, 5, 2, 10**9
# Python 3.12 and later warn of a fork beside other threads; these wait, and hold no lock
warnings.filterwarnings("ignore", ".* is multi-threaded, use of fork", DeprecationWarning)
SPARE = 100  # lines: a run may have a few less than another, as what is asked of a thread has other answers


def train(plan, folder, dropout, tell):
    """``tell`` is given each step and its loss. Goes on from what is in the folder."""
    run = made(plan, partial(gpt, dropout))
    there = [False] * RANKS
    dist.all_gather_object(there, (folder / files.INDEX).exists())
    begin = load(run, folder)[0] if all(there) else 0
    with Saver(run, folder) as keeper:
        for step in range(begin, STEPS):
            tell(step, *losses(run, [step]))
            keeper.poll()
            if step % EVERY == EVERY - 1:
                keeper.save(step + 1)


class Lines:
    """Those of TRACED that were begun, by all threads; ``last`` is one too many."""

    files = {module.__file__ for module in TRACED}  # noqa: RUF012
    begun, last = 0, NEVER

    @classmethod
    def trace(cls, frame, event, _):
        if frame.f_code.co_filename in cls.files:
            if event == "line":
                cls.begun += 1
                if cls.begun > cls.last:
                    os.kill(os.getpid(), signal.SIGKILL)
            return cls.trace


def rank_process(rank, store, plan, folder, dropout, last):
    """Its id, and what it tells."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS)
        torch.manual_seed(0)
        Lines.last = last
        threading.settrace(Lines.trace)
        sys.settrace(Lines.trace)
        said = os.fdopen(writes, "w")
        try:
            train(plan, folder, dropout, lambda *each: print(*each, file=said, flush=True))
            print("lines", Lines.begun, file=said, flush=True)
        finally:
            os._exit(0)  # what a rank says whose peer was killed is no matter
    os.close(writes)
    return pid, os.fdopen(reads)


def run(plan, folder, dropout, victim=None, last=NEVER):
    """(step -> loss, of rank 0, as far as it came; the lines that each ran; the signal that the victim died of)."""
    store = tempfile.mktemp(dir=folder.parent)
    ranks = [rank_process(r, store, plan, folder, dropout, last if r == victim else NEVER) for r in range(RANKS)]
    ids, signals = [pid for pid, _ in ranks], {}
    while len(signals) < RANKS:
        pid, status = os.wait()
        signals[pid] = os.WTERMSIG(status)
        for other in ids if signals[pid] else ():
            if other not in signals:
                os.kill(other, signal.SIGKILL)
    told, other = (dict(line.split() for line in said.read().splitlines()) for _, said in ranks)
    lines = [int(each.pop("lines", 0)) for each in (told, other)]
    return {int(step): float(loss) for step, loss in told.items()}, lines, victim is not None and signals[ids[victim]]


def step_in(folder):
    return files.read_index(folder)["step"] if (folder / files.INDEX).exists() else 0


def distance(found, whole, begin):
    assert sorted(found) == list(range(begin, STEPS)), f"from {begin}: {found}"
    return max((abs(found[step] - whole[step]) for step in found), default=0.0)


if __name__ == "__main__":
    folder, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    draw, unbroken = random.Random(seed), {}
    tinydist.launch(lambda: losses(made(PLANS[1]), [0]), RANKS)  # what is slow the first time is done before the forks
    for number in range(kills):
        here, dropout = folder / f"{number}", 0.2 * (number % 2)
        plan, other = draw.sample(PLANS, 2)
        if (plan, dropout) not in unbroken:
            unbroken[plan, dropout] = run(plan, folder / f"unbroken {number}", dropout)
        whole, lines, _ = unbroken[plan, dropout]
        victim = draw.randrange(RANKS)
        before, _, died = run(plan, here, dropout, victim, draw.randrange(lines[victim] - SPARE))
        left = step_in(here)
        if here.exists():
            shutil.copytree(here, folder / f"{number} elsewhere")
        again, _, _ = run(plan, here, dropout)
        elsewhere = None if dropout else distance(run(other, folder / f"{number} elsewhere", 0.0)[0], whole, left)
        same = all(loss == whole[step] for step, loss in before.items())
        found = {"plan": str(plan), "died": died, "at": len(before), "left": left, "before": same}
        found |= {"again": distance(again, whole, left), "elsewhere": elsewhere, "end": step_in(here)}
        print(json.dumps(found), flush=True)
