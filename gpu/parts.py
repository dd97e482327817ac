"""The parts: what runs, on how many devices at least; and one after another, whatever becomes of the one before."""

import traceback
from dataclasses import dataclass, field
from functools import partial

import tinydist
from tinydist.hardware import Cluster
from tinydist.model import GPTConfig

from . import collectives, kernels, pipeline, starts, training

LIMIT = 600.0  # seconds for a launch: a part that hangs has failed, and the others run


@dataclass
class Machine:
    """Where parts run. ``cluster`` is what the clock takes it for."""

    device: str  # "cuda" or "cpu"
    backend: str  # "nccl", "gloo" or "simulated"
    ranks: int
    cluster: Cluster
    config: GPTConfig
    rows: int = 8  # of a rank's batch
    steps: int = 10
    lengths: tuple = (1024, 4096, 16384)  # of sequences, for the kernels

    def launch(self, program, *arguments):
        return tinydist.launch(program, self.ranks, *arguments, backend=self.backend, timeout=LIMIT)


@dataclass
class Outcome:
    name: str
    state: str  # "passed", "failed" or "not run"
    why: str = ""  # its error, or what was missing
    rows: list = field(default_factory=list)  # of a table: column -> value


# Name -> (devices at least, what takes the machine and returns the rows of a table).
PARTS = {
    "launch from a notebook": (1, starts.from_a_notebook),
    "launch under torchrun": (1, starts.under_torchrun),
    "collectives": (2, collectives.compare),
    **{name: (1, partial(training.compare, name)) for name in training.PAIRS},
    "pipeline 1F1B": (2, pipeline.compare),
    "flash attention kernels": (1, kernels.compare),
}


def outcome_of(name, machine):
    least, run = PARTS[name]
    if machine.ranks < least:
        return Outcome(name, "not run", f"needs {least} devices, here: {machine.ranks}")
    try:
        return Outcome(name, "passed", rows=run(machine))
    except kernels.NoTriton as missing:
        return Outcome(name, "not run", str(missing))
    except Exception:
        return Outcome(name, "failed", traceback.format_exc())
