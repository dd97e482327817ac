"""Reads and saves the collectives recorded by PyTorch's Flight Recorder in a worker process."""

import pickle
from pathlib import Path

from ..torch_internals.groups import flight_record


def calls_recorded_in(program):
    """(operation, line) of each collective that ``program`` called in this process, in their order."""
    return [
        (entry["profiling_name"].removeprefix("gloo:"), frame["line"])
        for entry in pickle.loads(flight_record())["entries"]
        for frame in entry["frames"]
        if frame["name"] == program.__name__
    ]


def save_record(folder, rank):
    """As nccl's watchdog does it, gloo has none: the file ``rank_3`` of rank 3, for ``python -m tinydist diagnose``."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, f"rank_{rank}").write_bytes(flight_record())
