"""The backends of ``launch``: simulated ranks, local processes, and the ranks of a torchrun job.

Each returns what a Run is made of.
"""

import itertools
import math
import os
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist

from .. import processes
from ..hardware import default_cluster
from ..simulator.self_test import before_first_launch
from ..simulator.simulation import Simulation
from ..torch_internals import excepthook_unchanged
from ..tracing.record import Record

launches = itertools.count()
joined = []  # the job, once in a process


def simulate(fn, args, asked):
    cluster = asked.cluster or default_cluster(asked.ranks)
    cluster.check_ranks(asked.ranks)
    before_first_launch()
    operators = asked.observe is True
    record = Record(asked.ranks, asked.compute == "measured", operators) if asked.observe else None
    gpus = pretended_gpus(cluster, record, asked.fake, asked.values) if asked.gpus else None
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
        gpus=gpus,
    )
    results = simulation.run(fn, args, idle_timeout=asked.timeout or 60.0, cpu_timeout=asked.timeout or math.inf)
    if simulation.pending_calls:
        warnings.warn(f"launch: {simulation.pending_calls}", RuntimeWarning, stacklevel=3)
    return results, asked.backend, record, cluster


def pretended_gpus(*of):
    from ..gpus.install import PretendedGPUs  # only now: it loads half a second's worth of torch

    return PretendedGPUs(*of)


def run_processes(fn, args, asked):
    how = dict(backend=asked.backend, seed=asked.seed, timeout=asked.timeout, init=asked.init)
    return processes.run(fn, asked.ranks, args, **how), asked.backend


# Under torchrun.


def join(fn, args, asked):
    """Run ``fn`` as this process's rank of the job. Returns its results by rank, and the backend."""
    if dist.is_initialized():
        raise RuntimeError(f"launch: this is rank {dist.get_rank()} already; nested launch() is not supported")
    backend = asked.backend
    if backend == "simulated":
        backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(asked.seed)
    try:
        with excepthook_unchanged():
            return (take_part(fn, args, backend, asked.timeout) if asked.init else [fn(*args)]), backend
    except BaseException as error:
        error.add_note("on rank {RANK} of {WORLD_SIZE}".format_map(os.environ))
        raise


def job(**limit):
    """The job's store, this process's rank, and the world size. ``limit``: rendezvous timeout."""
    if not joined:
        joined.append(next(dist.rendezvous("env://", **limit)))
    return joined[0]


def take_part(fn, args, backend, timeout):
    limit = {"timeout": timedelta(seconds=float(timeout))} if timeout else {}
    store, rank, ranks = job(**limit)
    store = dist.PrefixStore(f"launch {next(launches)}", store)  # isolates the keys of this launch from earlier ones
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, **limit)
    try:
        results = [None] * dist.get_world_size()
        dist.all_gather_object(results, fn(*args))
    finally:
        dist.destroy_process_group()
    return results
