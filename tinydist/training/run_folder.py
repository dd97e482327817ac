"""A folder of checkpoints belongs to one run: to one at a time, and to one that is defined as the run that began it.

A run's only state is its step, and the data is a function of seed, batch and step (data.py). So a change of one of
these goes on without an error, with sequences that were seen already, or with others that never come. What defines the
run stands in its checkpoints: a change is refused, unless it is allowed by name.
"""

import os
import socket
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ..checkpoint.rules import CheckpointError

CHANGES = {  # what may be allowed: what it means
    "batch": "of the data's order, {seen:,} sequences are done, and step {step:,} now begins at number {place:,}",
    "seed": "the rest of the data comes in another order: some sequences come again, and others not in this epoch",
    "data": "the rest of the run reads other tokens",
    "held_out": "the windows are cut anew: some that are held out now have been trained on, or the reverse",
    "heads": "the weights have the same shapes, and what they compute is something else",
}


def check_same_run(folder, step, saved, run, allowed=()):
    """Raises ``CheckpointError`` for the first difference of ``saved`` and ``run``, name -> value, if not allowed."""
    for name in [name for name in run if saved.get(name, run[name]) != run[name] and name not in allowed]:
        there, here = saved[name], run[name]
        words = f"train: the checkpoint in {folder} is of a run with {name} {there}, and this one has {name} {here}"
        if name in CHANGES:
            place = {"step": step, "seen": step * saved.get("batch", 0), "place": step * run.get("batch", 0)}
            option = name.replace("_", "-")
            words += f": {CHANGES[name].format_map(place)}. --allow-change {option} goes on with it"
        raise CheckpointError(words)


@contextmanager
def only_run_in(folder):
    """On one rank: the folder is locked until the run, or its process, ends. Yields who has it already, or ""."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    lock, holder = FileLock(Path(folder, "run.lock"), thread_local=False), Path(folder, "run.holder")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield holder.read_text() if holder.exists() else "another process"
        return
    try:
        holder.write_text(f"process {os.getpid()} on {socket.gethostname()}")
        yield ""
    finally:
        holder.unlink(missing_ok=True)
        lock.release()
