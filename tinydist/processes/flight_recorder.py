"""Saves the collectives recorded by PyTorch's Flight Recorder in a worker process."""

from pathlib import Path

from ..torch_internals.groups import flight_record


def save_record(folder, rank):
    """As nccl's watchdog does it, gloo has none: the file ``rank_3`` of rank 3, for ``python -m tinydist diagnose``.

    A process keeps what it has recorded, also of earlier runs; ``processes.pool.pool.stop()`` makes the next ones new.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, f"rank_{rank}").write_bytes(flight_record())
