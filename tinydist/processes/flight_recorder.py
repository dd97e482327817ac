"""Saves the collectives recorded by PyTorch's Flight Recorder in a worker process."""

import io
import tempfile
from contextlib import redirect_stdout, suppress
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from ..torch_internals.groups import flight_record
from .call import run
from .pool import pool


def save_record(folder, rank):
    """As nccl's watchdog does it, gloo has none: the file ``rank_3`` of rank 3, for ``python -m tinydist diagnose``.

    A process keeps what it has recorded, also of earlier runs; ``processes.pool.pool.stop()`` makes the next ones new.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, f"rank_{rank}").write_bytes(flight_record())


def records_of(program, ranks, *arguments, seconds=5):
    """The folder with the records of a program that hangs, on new processes of gloo: those who wait in vain for so
    many ``seconds`` give up. What it prints is dropped."""
    pool.stop()
    folder = tempfile.mkdtemp(prefix="tinydist-records-")
    with redirect_stdout(io.StringIO()):  # None would not do: the progress message flushes it, from its thread
        run(recorded, ranks, (program, folder, arguments, seconds), init=False)
    return Path(folder)


def recorded(program, folder, arguments, seconds):
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
    with suppress(RuntimeError):  # it has waited in vain
        program(*arguments)
    save_record(folder, dist.get_rank())
    dist.destroy_process_group()
