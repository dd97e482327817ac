"""Executes one call on the workers: collects replies, detects failures, timeouts and interrupts."""

import math
import os
import queue
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import suppress

import cloudpickle
import torch
import torch.distributed as dist

from ..console.progress_message import progress_message
from ..rules import ranks_in_words
from ..simulator.rank_state import environment
from .pickles import name_of, pack
from .pool import pool

LOOPBACK = {"linux": "lo", "darwin": "lo0"}  # gloo's own choice needs a hostname that has an address
LOOK = 0.1  # seconds between two looks at whether the workers live
GRACE = 0.3  # seconds from the first failure to the verdict: peers of a dead rank complain before it is seen
ANSWER = 1.0  # seconds for a rank to say where it stands: one in native code may never

one_at_a_time = threading.Lock()


class WorkerDied(RuntimeError):
    """The process of a rank ended during a call."""


def run(fn, ranks, args=(), *, backend="gloo", seed=0, timeout=None, init=True):
    """What ``fn(*args)`` returned on each of ``ranks`` processes, by rank.

    Output of ranks is printed when all have ended, rank by rank, so always in the same order. ``timeout``, in seconds,
    includes starting workers, sending the program and running it. Modules imported by a worker are not reloaded.

    Raises what ``fn`` raised, with rank and traceback in its notes; ``WorkerDied``; ``TimeoutError``, which
    says where each rank stands, as the note of a KeyboardInterrupt does; ``TypeError`` for what is not
    picklable. A failure or an interrupt stops all workers; the next call starts new ones.
    """
    check(ranks, backend)
    program = pack(fn, args)
    with one_at_a_time, tempfile.TemporaryDirectory(prefix="tinydist-") as folder:
        call = Call(name_of(fn), ranks, backend, timeout)
        try:
            call.hear("ready", pool.grow(ranks))
            # Ranks meet in a file: a TCPStore asks the name server who 127.0.0.1 is, and may wait seconds.
            # A program that calls init_process_group itself needs one all the same.
            meeting, store = (os.path.join(folder, "store"), None) if init else (None, loopback_store())
            for rank in range(ranks):
                variables = variables_of(rank, ranks, store.port if store else 0)
                pool.tell(rank, "run", (variables, program, list(sys.path), os.getcwd(), backend, seed, meeting))
            results = call.hear("returned", range(ranks))
            # Only now: a rank that left early would close connections that its peers still use.
            for rank in range(ranks):
                pool.tell(rank, "leave")
            call.hear("left", range(ranks))
        except BaseException:
            pool.stop()
            raise
        finally:
            call.show()
    return [result and cloudpickle.loads(result) for result in results]


def loopback_store():
    """A TCPStore that only this machine can reach: left to itself it listens on all interfaces."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        return dist.TCPStore(
            "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )


def check(ranks, backend):
    if ranks < 1:
        raise ValueError(f"launch: ranks must be an integer >= 1, got {ranks!r}")
    if backend == "nccl" and ranks > (gpus := torch.cuda.device_count()):
        raise ValueError(f"launch: nccl requires one GPU per rank: {ranks} ranks, but {gpus} GPUs are available")
    if not dist.is_backend_available(backend):
        raise ValueError(f"launch: torch {torch.__version__} is built without the backend {backend!r}")


def variables_of(rank, ranks, port):
    """The kernel's environment and what torchrun sets: a store is there, and all ranks are its clients."""
    torchrun = environment(rank, ranks, ranks) | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    interface = {"GLOO_SOCKET_IFNAME": LOOPBACK[sys.platform]} if sys.platform in LOOPBACK else {}
    return interface | dict(os.environ) | {name: str(value) for name, value in torchrun.items()}


class Call:
    """One call, as the kernel follows it."""

    def __init__(self, name, ranks, backend, timeout):
        self.name, self.ranks, self.backend, self.timeout = name, ranks, backend, timeout
        self.deadline = math.inf if timeout is None else time.monotonic() + timeout
        self.awaited, self.asked = None, ()  # the kind of reply, and the ranks
        self.said = defaultdict(dict)  # kind of reply -> rank -> content
        self.lines = [[] for _ in range(ranks)]  # (stream, line)

    def hear(self, kind, ranks):
        """The replies of that kind, one from each of ``ranks``. Raises what happened instead."""
        self.awaited, self.asked = kind, ranks
        deadline, failing = self.deadline, False
        with progress_message(self.progress):
            while self.late():
                try:
                    self.take()
                except KeyboardInterrupt as pressed:
                    pressed.add_note("\n".join(self.standing()))
                    raise
                if not failing and (self.said["raised"] or self.dead()):
                    failing, deadline = True, time.monotonic() + GRACE
                if time.monotonic() > deadline:
                    raise self.failure()
        return [self.said[kind][rank] for rank in ranks]

    def late(self):
        return [rank for rank in self.asked if rank not in self.said[self.awaited]]

    def progress(self):
        doing = {"ready": "starting {}", "returned": "{} run " + self.name, "left": "{} leave their group"}[
            self.awaited
        ]
        done = {"ready": "up", "returned": "done", "left": "gone"}[self.awaited]
        so_far = sorted(self.said[self.awaited])
        return doing.format(f"{self.ranks} {self.backend} processes") + (
            f" ({ranks_in_words(so_far)} {done})" if so_far else ""
        )

    def take(self):
        """Wait a moment for a reply."""
        with suppress(queue.Empty):
            rank, kind, content = pool.replies.get(timeout=LOOK)
            if kind == "line":
                self.lines[rank].append(content)
            else:
                self.said[kind][rank] = content

    def dead(self):
        return [rank for rank in range(self.ranks) if pool.workers[rank].poll() is not None]

    def failure(self):
        if self.dead():
            return self.death(self.dead()[0])
        return self.exception() if self.said["raised"] else self.overdue()

    def death(self, rank):
        worker = pool.workers[rank]
        how = f"ended with exit code {worker.returncode}"
        if worker.returncode < 0:
            how = f"was killed by signal {signal.Signals(-worker.returncode).name}"
        task = {"ready": "started", "returned": f"ran {self.name}", "left": "left the process group"}
        who = f"rank {rank} of {self.ranks}"
        return WorkerDied(f"{who} {how} (pid {worker.pid}) while it {task[self.awaited]}")

    def exception(self):
        """What the first rank raised; where others raised alike, the lowest rank's: always the same."""
        raised = {rank: cloudpickle.loads(content) for rank, content in self.said["raised"].items()}
        kinds = {rank: type(error) for rank, (error, _) in raised.items()}
        rank = min(rank for rank in kinds if kinds[rank] is kinds[next(iter(kinds))])
        error, story = raised[rank]
        error.add_note(f"on rank {rank} of {self.ranks} (a {self.backend} process)")
        error.add_note("".join(story.format()).rstrip())
        return error

    def overdue(self):
        task = {"ready": "start", "returned": f"finish {self.name}", "left": "leave the process group"}[self.awaited]
        headline = f"launch: {len(self.late())} of {self.ranks} ranks did not {task} in {self.timeout} s"
        return TimeoutError("\n".join([headline, *self.standing()]))

    def standing(self):
        """Where the ranks are that have not replied: lines."""
        late = self.late()
        if self.awaited == "ready":
            return [f"  {ranks_in_words(late)}: starting"]
        for rank in late:
            pool.tell(rank, "where")
        deadline = time.monotonic() + ANSWER
        while len(self.said["stands"]) < len(late) and time.monotonic() < deadline:
            self.take()
        report = []
        for rank in late:
            call, site = self.said["stands"].get(rank, ("native code, or stopped: no response", None))
            report += [f"  rank {rank} is in {call or 'no torch.distributed call'}"]
            report += [f"    at {site}"] if site else []
        finished = self.said["returned"].keys()
        return report + ([f"  {ranks_in_words(finished)}: finished"] if finished else [])

    def show(self):
        for rank, lines in enumerate(self.lines):
            for stream, line in lines:
                print(f"[rank {rank}] {line}", file=getattr(sys, stream))
