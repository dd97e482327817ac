"""Threads that wait and use a core: OpenMP's, after an operator of torch that was cut into two.

    python benchmarks/spinning_threads.py [--rounds 30] [--write]

An operator on 8192 numbers, with two threads, then 5 ms of Python on one. If nothing else runs in the process, its
processor time is that of this one thread. The least ratio of the two in all rounds, with OMP_WAIT_POLICY as it is by
default (GNU's OpenMP: spin for a while, then sleep) and passive (sleep). ``--write`` puts the table where notebook 21
reads it.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks import csv_rows

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "21_spinning.csv"
BEFORE = {
    "nothing": lambda x: None,
    "x.trunc()": lambda x: x.trunc(),
    "x.to(torch.int8)": lambda x: x.to(torch.int8),
}


def ratio(before, x):
    process, thread = time.process_time(), time.thread_time()
    before(x)
    end = time.thread_time() + 5e-3
    while time.thread_time() < end:
        pass
    return (time.process_time() - process) / (time.thread_time() - thread)


def rows(policy, rounds):
    torch.set_num_threads(2)
    x = torch.randn(8192)
    for name, before in BEFORE.items():
        least = min(ratio(before, x) for _ in range(rounds))
        print(f"{policy:8} {name:17} {least:.2f}")
        row = {"policy": policy, "before": name, "processor_to_thread": f"{least:.2f}"}
        yield row | csv_rows.measured_on("torch")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--policy", help="of this process alone, which appends; without it, each has a process")
    chosen = parser.parse_args()
    if chosen.policy:
        found = list(rows(chosen.policy, chosen.rounds))
        if chosen.write:
            csv_rows.write(FILE, (csv_rows.read(FILE) if FILE.exists() else []) + found)
        return
    if chosen.write:
        FILE.unlink(missing_ok=True)
    for policy in ("default", "passive"):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
        environment |= {"OMP_WAIT_POLICY": "passive"} if policy == "passive" else {}
        subprocess.run([sys.executable, *sys.argv, "--policy", policy], env=environment, check=True)


if __name__ == "__main__":
    main()
