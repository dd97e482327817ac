"""Under torchrun, this process is a rank of a job already: it joins the job, and starts nothing."""

import itertools
import os
from datetime import timedelta

import torch
import torch.distributed as dist

from ..torch_internals import excepthook_unchanged


def under_torchrun():
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def join(fn, args, asked):
    """Run ``fn`` as this process's rank of the job: what it returned, by rank, and the backend."""
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


launches = itertools.count()


joined = []  # once in a process


def job(**limit):
    """The job's store, this process's rank, and the number of ranks. ``limit``: of waiting for the others."""
    if not joined:
        joined.append(next(dist.rendezvous("env://", **limit)))
    return joined[0]


def take_part(fn, args, backend, timeout):
    limit = {"timeout": timedelta(seconds=float(timeout))} if timeout else {}
    store, rank, ranks = job(**limit)
    store = dist.PrefixStore(f"launch {next(launches)}", store)  # in it, nobody finds what an earlier launch has left
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, **limit)
    try:
        results = [None] * dist.get_world_size()
        dist.all_gather_object(results, fn(*args))
    finally:
        dist.destroy_process_group()
    return results
