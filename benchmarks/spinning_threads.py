"""Threads that wait and use a core: OpenMP's, after an operator of torch that was cut into two.

    python benchmarks/spinning_threads.py [--rounds 41] [--write]

An operator on 8192 numbers, with two threads, then 5 ms of Python on one. If nothing else runs in the process, its
processor time in these 5 ms is that of this one thread: the median of their ratio. OMP_WAIT_POLICY is as it is by
default (GNU's OpenMP: threads spin for a while, then sleep), or passive (they sleep). ``--write`` puts the table where
notebook 21 reads it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks import csv_rows

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "21_spinning.csv"
WEIGHT = torch.randn(256, 8192).bfloat16()
BEFORE = {
    "nothing": lambda x: None,
    "x.trunc()": lambda x: x.trunc(),
    "x.to(torch.int8)": lambda x: x.to(torch.int8),
    "product in bf16": lambda x: F.linear(x.bfloat16(), WEIGHT),
}


def ratio(before, x):
    before(x)
    process, thread = time.process_time(), time.thread_time()
    end = time.thread_time() + 5e-3
    while time.thread_time() < end:
        pass
    return (time.process_time() - process) / (time.thread_time() - thread)


def rows(policy, rounds):
    torch.set_num_threads(2)
    x = torch.randn(8192)
    for name, before in BEFORE.items():
        middle = statistics.median(ratio(before, x) for _ in range(rounds))
        print(f"{policy:8} {name:17} {middle:.2f}")
        row = {"policy": policy, "before": name, "processor_to_thread": f"{middle:.2f}"}
        yield row | csv_rows.measured_on("torch")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=41)
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
