"""Runs of gloo that went wrong, and what PyTorch's Flight Recorder kept of them: tests/flight_records.

    python tests/flight_records.py           writes them anew: a folder for each run, a file for each rank

``stopped`` is a rank that the system halts for half a second, by SIGSTOP.
"""

import os
import pickle
import signal
import subprocess
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import tinydist
from tinydist.processes.flight_recorder import save_record
from tinydist.processes.pool import pool

HERE = Path(__file__).resolve()
FOLDER, RANKS = HERE.with_suffix(""), 3


def missing(rank):
    for step in range(3):
        if rank == 2 and step == 1:
            return
        dist.all_reduce(torch.ones(4))


def mismatch(rank):
    dist.all_reduce(torch.ones(4))
    dist.all_reduce(torch.ones(4 + (rank == 1)))


def metric(rank):
    if rank == 0:
        dist.all_reduce(torch.ones(1))
    dist.all_reduce(torch.ones(1))


def stopped(rank):
    for step in range(20):
        if rank == 1 and step % 5 == 2:
            subprocess.Popen(["sh", "-c", f"sleep 0.1; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.all_reduce(torch.ones(4))


def recorded(program, folder):
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    group = dist.new_group([0, 1])
    if rank != 2:
        dist.all_reduce(torch.ones(1), group=group)
    with suppress(RuntimeError):  # it has waited in vain
        program(rank)
    save_record(folder, rank)
    dist.destroy_process_group()


def without_this_machine(path):
    """The files' names, from the folder that they were installed in."""
    content = pickle.loads(path.read_bytes())
    for entry in content["entries"]:
        for frame in entry["frames"]:
            frame["filename"] = frame["filename"].replace(str(HERE.parents[1]) + "/", "").rpartition("lib/")[2]
        entry["frames"] = [frame for frame in entry["frames"] if frame["name"] != "work"][:4]
    path.write_bytes(pickle.dumps(content))


if __name__ == "__main__":
    for program in (missing, mismatch, metric, stopped):
        tinydist.launch(recorded, RANKS, program, FOLDER / program.__name__, backend="gloo", init=False)
        pool.stop()  # a process keeps what it has recorded
        for path in (FOLDER / program.__name__).iterdir():
            without_this_machine(path)
