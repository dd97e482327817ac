"""One run of a program on simulated ranks: combines scheduler, process groups and per-rank state."""

import math
import os
import random
import sys
import threading
import warnings
from contextlib import nullcontext
from weakref import WeakSet

import torch
import torch.distributed as dist

from .. import torch_internals
from ..console.progress_message import aside, progress_message
from ..tracing.hooks import calls_told, purposes_known
from ..tracing.observer import Observer
from ..tracing.streams import host_waits, streams_recorded
from .call_sites import here
from .deadlock import deadlock_report, pending_calls_report
from .matching import GroupCreations, SharedGroup
from .per_rank import PerRankPlaces
from .process_group import SimulatedProcessGroup
from .profiler import Profilers
from .rank_exit import run_to_exit
from .rank_state import KernelState, RankState
from .scheduler import RankScheduler, TimedOut, rank_alone
from .store import SharedStore
from .supervisor import Supervisor

running = threading.Lock()  # the kernel has one torch.distributed to lend


class Simulation:
    """``ranks`` simulated ranks, ready to run one program.

    ``schedule``: "fifo", or "shuffle" for another legal order of events, chosen by ``seed`` and replayed by it.
    ``per_node``: ranks per node (None: all). ``record`` records the ranks' operations. ``fake`` uses tensors without
    data; then ``only`` may list the ranks that run: the others are assumed to behave the same. ``per_rank``: additional
    global variables that each rank needs separately. ``gpus``: PretendedGPUs, if its ranks see some.
    """

    def __init__(
        self,
        ranks,
        *,
        seed=0,
        schedule="fifo",
        init=True,
        per_node=None,
        record=None,
        fake=False,
        only=None,
        per_rank=(),
        gpus=None,
    ):
        self.gpus = gpus
        self.ranks, self.seed, self.init, self.record = ranks, seed, init, record
        self.watched = record is not None and record.operators
        self.per_node = per_node or ranks
        self.places = PerRankPlaces(per_rank)
        self.fake = fake
        self.present = range(ranks) if only is None else sorted(set(only))
        self.scheduler = RankScheduler(
            self.present,
            enter=lambda rank: self.states[rank].enter(),
            leave=lambda rank: self.states[rank].leave(),
            random=random.Random(seed) if schedule == "shuffle" else None,
        )
        self.store = SharedStore(self.scheduler)
        self.states = {}  # rank -> RankState
        self.groups = {}  # (name, ranks) -> SharedGroup
        self.handles = WeakSet()  # on them
        self.makings = GroupCreations("", range(ranks), ranks, len(self.present))
        self.identity = {rank: rank for rank in range(ranks)}
        self.kernel_streams = {"stdout": sys.stdout, "stderr": sys.stderr}

    def run(self, fn, args=(), idle_timeout=60.0, cpu_timeout=math.inf):
        """Run ``fn(*args)``; returns results by rank. ``pending_calls`` then lists calls that were never completed."""
        supervisor = Supervisor(self.scheduler, idle_timeout=idle_timeout, cpu_timeout=cpu_timeout)
        with supervisor.interruptible():
            return self._run(supervisor, fn, args)

    def _run(self, supervisor, fn, args):
        with progress_message("loading more of torch"):
            kernel = KernelState(self.places)
            if self.watched and (self.gpus or self.fake or self.record.measured):  # else the first operator may
                torch_internals.load_for_modes()
        launching = rank_alone()  # it waits meanwhile
        if not launching and not running.acquire(blocking=False):
            raise RuntimeError("nested launch() is not supported: ranks are already running")
        try:
            with (
                launching.lent() if launching else nullcontext(),
                torch_internals.replaced(self._new_process_group, self._rendezvous),
                torch_internals.profiled_by(Profilers(self.scheduler)),
                torch_internals.fake_as_real() if self.fake else nullcontext(),
                warnings.catch_warnings(),
                purposes_known(self.record, self._ledger) if self.watched else nullcontext(),
                calls_told() if self.watched else nullcontext(),
                streams_recorded() if self.watched else nullcontext(),
                self.gpus.installed() if self.gpus else nullcontext(),
            ):
                self.fake = torch_internals.FakeTensors() if self.fake else None  # which loads much of torch
                self.states = {rank: self._new_state(rank) for rank in self.present}
                random.seed(self.seed)  # functions that the kernel imported from random draw from its generator
                with progress_message(self._progress):
                    results = supervisor.run(lambda rank: self._live(rank, fn, args))
                self.pending_calls = pending_calls_report([self.makings, *self.groups.values()])
                by_rank = dict(zip(self.present, results, strict=True))
                return [by_rank.get(rank) for rank in range(self.ranks)]
        finally:
            kernel.restore(self.states.values())
            for group in self.groups.values():
                group.forget_tensors()
            if not launching:
                running.release()

    def wait(self, event, timeout=None):
        """Block the running rank until ``event`` is done, for ``timeout`` seconds at most (None: for ever)."""
        try:
            task = self.scheduler.wait(event, timeout)
        except TimedOut as error:
            error.add_note(str(deadlock_report(self.scheduler.tasks)))
            raise
        if self.record:
            self.record.wait(task.rank, event)
            if self.gpus and event.transfer.name == "barrier":  # NCCL's blocks the CPU
                host_waits()

    def _new_state(self, rank):
        return RankState(self.places, rank, self.ranks, self.per_node, self.seed, self._show)

    def _live(self, rank, fn, args):
        # As torchrun does. OpenMP counts for each thread, so each rank says it: two on one processor would spin.
        torch.set_num_threads(1)
        torch_internals.be_profiled(False)  # until the rank starts its profiler
        try:
            with torch.autograd.set_multithreading_enabled(False), self._fakes(), self._watched(rank):
                if self.init:
                    group = self.process_group("0", range(self.ranks), rank)
                    group.description = "default_pg"
                    torch_internals.install_world_group(group, "0", "simulated", self.store, self.identity)
                return run_to_exit(rank, fn, args)
        finally:
            if self.scheduler.running:  # else the run is over, and native code has let go of this rank only now
                torch_internals.forget_groups()
                self.states[rank].flush()

    def _fakes(self):
        """All tensors are fake; where there are GPUs, those on them (gpus/observer.py)."""
        return self.fake if self.fake and not self.gpus else nullcontext()

    def _watched(self, rank):
        if self.gpus:
            return self.gpus.of_rank(rank, self.fake)
        return Observer(self.record, rank) if self.watched else nullcontext()

    def process_group(self, name, ranks, index):
        """The handle of ``ranks[index]`` on the group of that name and these ranks, which they share."""
        handle = SimulatedProcessGroup(self, self.group(name, ranks), index)
        self.handles.add(handle)
        return handle

    def group(self, name, ranks):
        ranks = ranks if isinstance(ranks, range) else tuple(ranks)  # a range is found at once, however long
        if (name, ranks) not in self.groups:
            present = sum(rank in self.present for rank in ranks)
            self.groups[name, ranks] = SharedGroup(name, ranks, self.ranks, present)
        return self.groups[name, ranks]

    def go_on_from(self, earlier):
        """Make process-group handles from an earlier run of the same ranks usable in this run."""
        while earlier.handles:
            earlier.handles.pop().move_to(self)

    def _new_process_group(
        self, size, index, ranks, backend, store, name, timeout=None, pg_tag=None, group_desc=None, **options
    ):
        """Replaces torch's function to create groups. The default group has no ``ranks``, non-members no ``index``."""
        if not size:
            raise ValueError("new_group: the list of ranks is empty, and a group has one at least")
        if not ranks and size != self.ranks:
            raise ValueError(f"init_process_group: world_size is {size}, but {self.ranks} ranks were launched")
        if ranks and name.isdigit():  # else its members alone make it, and its name is a hash
            self.makings.join(self.scheduler.me().rank, ranks, here())
        if index is None:
            return dist.GroupMember.NON_GROUP_MEMBER, None
        ranks = ranks or range(size)
        handle = torch_internals.group_of_tag(pg_tag, ranks)
        if handle is None:
            handle = self.process_group(name, ranks, index)
            handle.description, handle.backend = group_desc or "undefined", str(backend)
            handle.timeout = torch_internals.chosen_timeout(timeout, backend)
            torch_internals.install_group(handle, name, backend, store, pg_tag)
        return handle, store

    def _rendezvous(self, url, rank=-1, world_size=-1, **options):
        """Replaces torch's rendezvous: whatever the address, all ranks are in this process."""
        if rank < 0 and "RANK" not in os.environ:
            raise ValueError(f"init_process_group({url!r}): no rank was passed, and RANK is not set in the environment")
        rank = int(os.environ["RANK"]) if rank < 0 else rank
        yield self.store, rank, self.ranks if world_size < 0 else world_size

    def _ledger(self):
        return self.record.ledgers[self.scheduler.running.rank]

    def _show(self, rank, stream, line):
        kernel_stream = self.kernel_streams[stream]

        def show():
            with aside():
                kernel_stream.write(f"[rank {rank}] {line}\n")

        self.scheduler.notices.put(show)

    def _progress(self):
        running = self.scheduler.running
        words = f"{self.ranks} simulated rank{'s' * (self.ranks > 1)}"
        return f"{words}: rank {running.rank} runs" if running else words
