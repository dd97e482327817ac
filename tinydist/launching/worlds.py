"""The three worlds in which ranks live: what each returns is what a Run is made of."""

import math
import warnings

from .. import processes
from ..hardware import default_cluster
from ..simulator.self_test import before_first_launch
from ..simulator.simulation import Simulation
from ..tracing.record import Record
from .torchrun import join, under_torchrun

__all__ = ["join", "run_processes", "simulate", "under_torchrun"]


def simulate(fn, args, asked):
    cluster = asked.cluster or default_cluster(asked.ranks)
    cluster.check_ranks(asked.ranks)
    before_first_launch()
    operators = asked.observe is True
    record = Record(asked.ranks, asked.compute == "measured", operators) if asked.observe else None
    simulation = Simulation(
        asked.ranks,
        seed=asked.seed,
        schedule=asked.schedule,
        init=asked.init,
        per_node=cluster.devices_per_node,
        record=record,
        fake=asked.fake,
        only=asked.only,
        per_rank=asked.per_rank,
    )
    results = simulation.run(fn, args, patience=asked.timeout or 60.0, limit=asked.timeout or math.inf)
    if simulation.unfinished:
        warnings.warn(f"launch: {simulation.unfinished}", RuntimeWarning, stacklevel=3)
    return results, asked.backend, record, cluster


def run_processes(fn, args, asked):
    how = dict(backend=asked.backend, seed=asked.seed, timeout=asked.timeout, init=asked.init)
    return processes.run(fn, asked.ranks, args, **how), asked.backend
