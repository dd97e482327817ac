"""The training command on two machines, over a wire without a limit, of 1 Gbit/s and of 100 Mbit/s.

    python examples/machines/two_machines.py             or with a delay, where the kernel has netem: --delay 1ms
    python examples/machines/two_machines.py --write     into notebooks/data/12b_two_machines.csv, too

Losses beside those of one machine; a step beside the step without a limit plus what the library's clock gives for the
wire. The limit changes every few steps of one run, and the fastest step of each counts: whatever else the computer does
can only add to it. Of 1,514 bytes of a packet of Ethernet, 1,448 are the program's: the others are headers of Ethernet,
IP and TCP.
"""

import argparse
import csv
import io
import json
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from datetime import date
from importlib.metadata import version
from itertools import cycle
from pathlib import Path

import namespaces

from tinydist.hardware import Cluster, Link
from tinydist.training.command import SHORT, options, simulate
from tinydist.training.job import Job

FILE = Path(__file__).resolve().parents[2] / "notebooks" / "data" / "12b_two_machines.csv"
ROUNDS, EACH, WARM = 5, 6, 10  # times each rate has its turn; its steps; steps at the begin, which are slower
RATES = {None: "no limit", 1e9: "1 Gbit/s", 100e6: "100 Mbit/s"}
STEPS = WARM + ROUNDS * EACH * len(RATES)
TRAIN = ["--mesh", "dp=2", "--model", "layers=4,dim=256,heads=4,context=16", "--batch", "2", "--steps", str(STEPS)]
PAYLOAD = 1448 / 1514
FIELDS = "{:<12} {:>10} {:>14} {:>14} {:>8} {:>16}"


def clock(rate, delay=0.0):
    """Seconds that a step's messages take on a wire of ``rate`` bits/s, where each is ``delay`` seconds on its way."""
    wire = Link(f"Ethernet {rate:g}", delay, rate / 8).at(PAYLOAD)
    chosen = options().parse_args(TRAIN)
    chosen.cluster = Cluster("laptop CPU", 1, nodes=2, inter_node=wire).communication_alone
    run = simulate(Job(Namespace(**vars(chosen) | SHORT)), io.StringIO(), io.StringIO(), observe=True)
    return run.between(("step", -1)).seconds


def train(machines, history, meanwhile=lambda: None):
    """A dict for each step, by two processes on one machine, or one on each of two."""
    processes = str(2 // machines)
    words = ["--nproc-per-node", processes, "-m", "tinydist", "train", *TRAIN, "--history", str(history)]
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    started = [namespaces.start(number, *words, nodes=machines, **quiet) for number in range(machines)]
    while any(each.poll() is None for each in started):
        meanwhile()
        time.sleep(0.001)
    for each in started:
        if each.returncode:
            sys.exit(f"two machines: training ended with {each.returncode}\n{each.stderr.read()}")
    return [json.loads(line) for line in history.read_text().splitlines()]


class Turns:
    """Each rate has its turn, of EACH steps; ``by_rate``: rate -> the steps that began and ended in them."""

    def __init__(self, history, delay):
        self.history, self.delay = history, delay
        self.rates, self.next = cycle(RATES), WARM
        self.by_rate = {rate: [] for rate in RATES}

    def __call__(self):
        taken = self.history.read_bytes().count(b"\n") if self.history.exists() else 0
        if self.next <= taken < STEPS:
            rate = next(self.rates)
            namespaces.limit(rate and f"{rate:.0f}", rate and self.delay)
            self.next = taken + EACH
            self.by_rate[rate] += range(taken + 2, self.next)  # one more may have begun before the change


def main(folder, delay):
    """Seconds of the fastest step, by rate."""
    namespaces.limit(None, delay)  # if it cannot be, it is said at once
    alone = train(1, folder / "one")
    turns = Turns(folder / "two", delay)
    both = train(2, folder / "two", turns)
    print(FIELDS.format("wire", "step, ms", "clock adds, ms", "expected, ms", "ratio", "steps"))
    free, seconds, fastest = None, float(delay.removesuffix("ms")) / 1e3 if delay else 0.0, {}
    for rate, steps in turns.by_rate.items():
        step = fastest[rate] = min(both[number]["seconds"] for number in steps if number < STEPS)
        free, adds = (free, clock(rate, seconds)) if rate else (step, 0.0)
        row = [f"{1e3 * each:.1f}" for each in (step, adds, free + adds)]
        print(FIELDS.format(RATES[rate], *row, f"{step / (free + adds):.3f}", len(steps)))
    apart = max(abs(one["loss"] - two["loss"]) for one, two in zip(alone, both, strict=True))
    print(f"{STEPS} losses differ from those of one machine by {apart} at most")
    return fastest


def write(fastest, path=FILE):
    """The table of notebook 12b."""
    rows = [
        {
            "wire": RATES[rate],
            "bits_per_second": f"{rate:.0e}".replace("+0", "") if rate else "",
            "ms": f"{1e3 * step:.1f}",
            "torch": version("torch").partition("+")[0],
            "date": date.today().isoformat(),
        }
        for rate, step in fastest.items()
    ]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    asks = argparse.ArgumentParser()
    asks.add_argument("--delay", metavar="1ms", help="of each message; in ms")
    asks.add_argument("--write", action="store_true", help="the table of notebook 12b: without a delay")
    chosen = asks.parse_args()
    if chosen.write and chosen.delay:
        asks.error("--write is of a wire without --delay")
    namespaces.enter()
    with tempfile.TemporaryDirectory() as folder:
        found = main(Path(folder), chosen.delay)
    if chosen.write:
        write(found)
