"""A run on two nodes that loses its processes, at moments that chance chooses, and what each loss costs.

    python examples/machines/kills.py 50
    python examples/machines/kills.py 30 --last-call 30 --write     into notebooks/data/12b_kills.csv, too

    worker   one of the training processes is killed: torchrun stops the others, and starts all anew
    node     all of the second node is killed, with its torchrun: the first goes on alone
    host     all of the first node, which hosts the rendezvous: the job is over on the other, too, and is started again
    join     a second node comes to one that is alone: nothing is killed, but all workers are stopped and started anew

Lost are steps since the last checkpoint, and seconds: from the kill until training is started anew (``meet``: torchrun
notices, stops the others, rendezvous, start of processes), and from there until the first step is over (``load``:
processes connect, load the checkpoint, take the step).

Nodes are torchruns of this computer. They and their workers are forked from a process that has loaded torch: so they
start in less time than that takes.
"""

import argparse
import contextlib
import csv
import io
import json
import multiprocessing
import os
import random
import socket
import tempfile
import time
from pathlib import Path

import psutil

from tinydist.training.command import main as train

HERE = Path(__file__).parent
FILE = HERE.parents[1] / "notebooks" / "data" / "12b_kills.csv"
STEPS, EVERY, PATIENCE = 500, 10, 120  # steps of a run and from checkpoint to checkpoint; seconds
TRAIN = ["--model", "layers=1,dim=16,heads=2,context=16", "--steps", str(STEPS)]
LAST_CALL = 3  # seconds; torchrun's own is 30
SOON = "join_timeout=60,last_call_timeout={},keep_alive_interval=1,keep_alive_max_attempt=5"
NOTICE = ["--timeout", "15"]  # seconds, until one who is lost before all are connected is given up
KILLS = {"worker": 6, "node": 3, "host": 1}  # how often each

forked = multiprocessing.get_context("forkserver")
forked.set_forkserver_preload(["torch.distributed.run", "torch._dynamo", "tinydist.training.command"])


def torchrun(log, *words):
    """The life of a node's first process. Those that it starts are of its session."""
    from torch.distributed.run import main

    os.setsid()
    os.environ |= {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # the second: see README.md
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    main(words)


class Run:
    """Trains in a folder, on one or two nodes."""

    def __init__(self, folder, last_call=LAST_CALL):
        self.folder, self.nodes, self.sessions = folder, {}, []
        self.last_call, self.seen = last_call, []  # seen: of each start, when it and its first step were, in seconds
        folder.mkdir(exist_ok=True)

    def start(self, *numbers):
        """Node 0 hosts the rendezvous."""
        if 0 in numbers:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.endpoint = f"127.0.0.1:{free.getsockname()[1]}"
        for number in numbers:
            conf = f"is_host={int(number == 0)},{SOON.format(self.last_call)}"
            words = ["--nnodes", "1:2", "--max-restarts", "1000", "--rdzv-backend", "c10d", "--rdzv-conf", conf]
            words += ["--rdzv-endpoint", self.endpoint, "--local-addr", "127.0.0.1", "--start-method", "fork"]
            words += ["--run-path", HERE / "elastic.py", self.folder, *TRAIN, "--save-every", str(EVERY), *NOTICE]
            self.nodes[number] = forked.Process(
                target=torchrun, args=[self.folder / f"node {number}", *map(str, words)]
            )
            self.nodes[number].start()
            self.sessions.append(self.nodes[number].pid)

    def processes(self, *sessions):
        """Those that live."""
        for each in psutil.process_iter(["status"]):
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(each.pid) in sessions and each.info["status"] != psutil.STATUS_ZOMBIE:
                    yield each

    def workers(self, number):
        node = self.nodes[number].pid
        return [each for each in self.processes(node) if each.pid != node]

    def lose(self, number):
        """A node and all that runs on it."""
        kill(self.processes(self.nodes[number].pid))
        self.nodes.pop(number).join()

    def starts(self):
        """(ranks, steps) of each start of training: ``steps`` are dicts."""
        history = self.folder / "history"
        found = []
        for line in history.read_text().splitlines() if history.exists() else ():
            state = json.loads(line)
            if "ranks" in state:
                found.append((state["ranks"], []))
            else:
                found[-1][1].append(state)
        now = time.monotonic()
        self.seen += [[now, None] for _ in found[len(self.seen) :]]
        for times, (_, steps) in zip(self.seen, found):
            times[1] = times[1] or (now if steps else None)
        return found

    @property
    def over(self):
        """A second node that comes then finds nobody."""
        return self.nodes[0].exitcode is not None

    def until(self, starts, ranks, steps):
        """Wait until a start after ``starts`` others has so many ranks, and has taken so many steps. Or it is over."""
        begun = time.monotonic()
        while not self.over:
            found = self.starts()
            if len(found) > starts and (ranks, steps) <= (found[-1][0], len(found[-1][1])):
                return
            if time.monotonic() - begun > PATIENCE:
                raise TimeoutError(f"{self.folder}: after {PATIENCE} s it does not train on {ranks} ranks")
            time.sleep(0.005)


def kill(processes):
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


def happen(what, run, draw):
    """How many starts there were before, and when it was."""
    before, moment = len(run.starts()), time.monotonic()
    if what == "worker":
        workers = [each for number in run.nodes for each in run.workers(number)]
        if workers:
            kill([draw.choice(workers)])
    elif what == "join":
        run.start(1)
    else:
        run.lose(int(what == "node"))
    if what == "host":
        for number in list(run.nodes):
            run.nodes.pop(number).join(PATIENCE)  # it ends by itself
        run.start(0, 1)
    return before, moment


def events(run, draw, kills):
    """Until the run is over, or has had so many kills: (what, how many starts there were before it, when it was)."""
    run.start(0, 1)
    starts, ranks = 0, 2
    while True:
        run.until(starts, ranks, draw.randrange(4 * EVERY))  # 0: before the first step, while they connect
        time.sleep(draw.random() / 50)  # within a step, or a save
        if run.over or not kills:
            break
        alone = 1 not in run.nodes
        what = "join" if alone else draw.choices(list(KILLS), list(KILLS.values()))[0]
        (starts, moment), ranks = happen(what, run, draw), 1 if what == "node" else 2
        kills -= what in KILLS
        yield what, starts, moment
    for node in run.nodes.values():
        node.join(PATIENCE)


def rows(happened, starts, seen=()):
    """A dict for each event: steps taken when it came, the step from which training went on, those lost between; and
    seconds: ``meet`` until training is started anew, ``load`` until the first step after that; None where both were
    first seen together."""
    for what, before, moment in happened:
        begun, stepped = next((times for times in seen[before:] if times[1]), (None, None))
        times = (
            {"meet": begun - moment, "load": stepped - begun}
            if stepped and stepped > begun
            else {"meet": None, "load": None}
        )
        taken = [steps for _, steps in starts[:before] if steps]
        at = taken[-1][-1]["step"] + 1 if taken else 0
        after = next((steps[0]["step"] for _, steps in starts[before:] if steps), at)
        yield {"what": what, "at": at, "on": after, "lost": at - after} | times


def reference(folder):
    """The losses of a run that nothing happens to, on simulated ranks."""
    with contextlib.redirect_stdout(io.StringIO()):
        train(["--mesh", "dp=2", *TRAIN, "--history", str(folder / "unbroken"), "--backend", "simulated"])
    return [json.loads(line)["loss"] for line in (folder / "unbroken").read_text().splitlines()]


def campaign(kills, seed, folder, last_call=LAST_CALL):
    """A dict for each run: its events, its statuses, losses that are wrong, processes that it leaves behind."""
    draw, losses = random.Random(seed), reference(folder)
    number = 0
    while kills:
        run = Run(folder / f"run {number}", last_call)
        try:
            happened = list(events(run, draw, kills))
        except BaseException:
            kill(run.processes(*run.sessions))
            raise
        kills -= sum(what in KILLS for what, *_ in happened)
        starts = run.starts()
        states = [state for _, steps in starts for state in steps]
        wrong = sum(abs(state["loss"] - losses[state["step"]]) > 1e-5 for state in states)
        last = max(state["step"] for state in states) + 1
        status, left = run.nodes[0].exitcode, len(list(run.processes(*run.sessions)))
        yield dict(rows=list(rows(happened, starts, run.seen)), status=status, steps=last, wrong=wrong, left=left)
        number += 1


def main():
    asks = argparse.ArgumentParser()
    asks.add_argument("kills", type=int)
    asks.add_argument("--seed", type=int, default=0)
    asks.add_argument("--json", action="store_true", help="a line for each run")
    asks.add_argument("--last-call", type=int, default=LAST_CALL, help="seconds for which a rendezvous waits for more")
    asks.add_argument("--write", action="store_true", help="the table of notebook 12b")
    chosen = asks.parse_args()
    told = []
    with tempfile.TemporaryDirectory() as folder:
        for number, run in enumerate(campaign(chosen.kills, chosen.seed, Path(folder), chosen.last_call)):
            told += [{"run": number, "last_call": chosen.last_call} | row for row in run["rows"]]
            if chosen.json:
                print(json.dumps(run), flush=True)
                continue
            for row in run["rows"]:
                print("{what:<7} after step {at:>3}, on from {on:>3}: {lost:>2} lost".format(**row), *seconds(row))
            print(
                "status {status}, {steps} steps, {wrong} wrong losses, {left} processes left".format(**run), flush=True
            )
    if chosen.write:
        with FILE.open("w", newline="") as file:
            writer = csv.DictWriter(file, told[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(row | dict(zip(("meet", "load"), seconds(row))) for row in told)


def seconds(row):
    """As text; none where the run was over."""
    return ["" if row[key] is None else f"{row[key]:.2f}" for key in ("meet", "load")]


if __name__ == "__main__":
    main()
