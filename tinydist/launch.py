"""The front door: run one function on N ranks of any world."""

import os
from functools import cached_property

import torch
import torch.distributed as dist

from . import processes
from .hardware import default_cluster, find_cluster
from .simulator.call_sites import learners_traceback
from .simulator.clock import replay
from .simulator.record import Record
from .simulator.simulation import Simulation

BACKENDS = ("simulated", "gloo", "nccl")


class Run:
    """What came of a launch. Of simulated ranks it knows more: traffic, memory and time, on any cluster."""

    def __init__(self, results, backend, record=None, cluster=None):
        self.results = results  # what fn returned, by rank
        self.backend = backend
        self.record, self.cluster = record, cluster

    def __repr__(self):
        return f"<{len(self.results)} {self.backend} ranks ran>"

    @cached_property
    def trace(self):
        """What happened when, in virtual time: a ``Trace``."""
        if self.record is None:
            raise RuntimeError("this run was not observed: it ran on processes, or was launched with observe=False")
        return replay(self.record, self.cluster)

    @property
    def seconds(self):
        """Virtual time of the slowest rank."""
        return self.trace.seconds

    @property
    def traffic(self):
        """Bytes sent, [source][destination]."""
        return self.trace.traffic

    @property
    def memory(self):
        """What each rank held, by rank: ``peak``, ``at_peak`` by purpose, ``over_time()``."""
        return self.trace.memory

    def on(self, cluster):
        """The same run on another cluster: nothing is run again."""
        return Run(self.results, self.backend, self.record, find_cluster(cluster))


def launch(
    fn,
    ranks=4,
    *args,
    backend=None,
    cluster=None,
    seed=0,
    schedule="fifo",
    timeout=None,
    init=True,
    observe=True,
    compute="modeled",
    fake=False,
    only=None,
    per_rank=(),
):
    """Run ``fn(*args)`` on ``ranks`` ranks; ``run.results[rank]`` is what it returned there.

    ``fn`` is an ordinary torch.distributed program: the default process group exists when it starts and is gone when
    it ends. ``backend`` is where the ranks live:

    - ``"simulated"``: threads of this process, one at a time, in the same order every time;
    - ``"gloo"``: processes on this machine;
    - ``"nccl"``: processes with a GPU each.

    The environment variable TINYDIST_BACKEND replaces the default, "simulated". Under ``torchrun`` (RANK and WORLD_SIZE
    are set) launch starts nothing: this process joins the job as the rank that it is, ``ranks`` is the job's, and
    "simulated" becomes "nccl" where there are GPUs and "gloo" elsewhere.

    seed:      every rank's random generators start from it.
    timeout:   seconds. For processes, of the whole run (None: no limit). For simulated ranks, how long one may neither
               compute nor communicate while it keeps the others from running (None: 60).
    init:      False for a program that calls ``init_process_group`` itself.

    Of simulated ranks alone:

    cluster:   a ``hardware.Cluster``, or the name of one ("H100 pod"), for virtual time and the ranks' places, as in
               LOCAL_RANK. None: nodes of 8 A100s.
    schedule:  "fifo", or "shuffle" for another legal order, chosen and replayed by ``seed``.
    observe:   record operators, memory and communication, for ``run.trace`` and what follows from it.
    compute:   "modeled", or "measured": operators take the processor's own time, and times differ from run to run.
    fake:      tensors have shapes but no data, so they take no memory.
    only:      with ``fake``, the ranks to run; the others are taken to do the same, and return None.

    per_rank:  what a library keeps once in a process and each rank must have for itself, as "module:Class.name";
               a rank begins with a copy of it. What torch, Accelerate, transformers and picotron keep is known.

    Raises what the first failing rank raised, with the rank in a note; ``DeadlockError`` and ``MismatchError`` on
    simulated ranks; ``ValueError`` for arguments that make no world.
    """
    backend = backend or os.environ.get("TINYDIST_BACKEND", "simulated")
    if backend not in BACKENDS:
        raise ValueError(f"launch: backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if schedule not in ("fifo", "shuffle"):
        raise ValueError(f"launch: schedule must be 'fifo' or 'shuffle', got {schedule!r}")
    if compute not in ("modeled", "measured"):
        raise ValueError(f"launch: compute must be 'modeled' or 'measured', got {compute!r}")
    if not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"launch: ranks must be a whole number from 1, got {ranks!r}")
    if only is not None and not (fake and only and set(only) <= set(range(ranks))):
        raise ValueError(f"launch: only names some of the ranks 0 to {ranks - 1}, with fake=True, got {only!r}")
    try:
        if under_torchrun():
            return Run(*join(fn, args, backend, seed, init))
        if backend == "simulated":
            cluster = find_cluster(cluster) if cluster else default_cluster(ranks)
            cluster.check_ranks(ranks)
            record = Record(ranks, measured=compute == "measured") if observe else None
            simulation = Simulation(
                ranks,
                seed=seed,
                schedule=schedule,
                init=init,
                per_node=cluster.devices_per_node,
                record=record,
                fake=fake,
                only=only,
                per_rank=per_rank,
            )
            results = simulation.run(fn, args, patience=timeout or 60.0)
            return Run(results, backend, record, cluster)
        return Run(processes.run(fn, ranks, args, backend=backend, seed=seed, timeout=timeout, init=init), backend)
    except BaseException as error:
        error.__traceback__ = learners_traceback(error)
        raise


def under_torchrun():
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def join(fn, args, backend, seed, init):
    """Run ``fn`` as this process's rank of a torchrun job. All ranks' results, and the backend."""
    if dist.is_initialized():
        raise RuntimeError(f"launch: this is rank {dist.get_rank()} already; a rank cannot launch ranks of its own")
    if backend == "simulated":
        backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(seed)
    if not init:
        return [fn(*args)], backend
    dist.init_process_group(backend)
    try:
        results = [None] * dist.get_world_size()
        dist.all_gather_object(results, fn(*args))
    finally:
        dist.destroy_process_group()
    return results, backend
