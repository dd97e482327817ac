"""torch.profiler on simulated ranks: there is one profiler per process, so all ranks share one session.

It begins when the first rank starts its profiler and ends when the last one stops; only then are results available:
a rank that asks for them earlier waits. Each rank's events are its own, told apart by their threads; a trace that is
saved shows all ranks, one below the other.
"""

import json
import os
import tempfile
import threading
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path

from .. import torch_internals
from .scheduler import Waitable


class ProfilerSession(Waitable):
    """Of the ranks that profile at one time. Done when all of them have stopped."""

    def __init__(self):
        super().__init__()
        self.ranks = {}  # the system's number of a thread -> rank
        self.profiling = set()  # the ranks that have not stopped
        self.result = None

    @cached_property
    def trace(self):
        """JSON for Chrome or Perfetto. torch saves it only once."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json")
            self.result.save(str(path))
            trace = json.loads(path.read_text())
        events = [event for event in trace["traceEvents"] if not event["name"].startswith("thread_")]
        for thread, rank in self.ranks.items():  # torch names some threads of this session, and some of earlier ones
            events.append(remark(thread, "thread_name", name=f"rank {rank}"))
            events.append(remark(thread, "thread_sort_index", sort_index=rank))
        return json.dumps(trace | {"traceEvents": events})

    def wait_in_words(self):
        return "the results of its profiler", f"which ranks {sorted(self.profiling)} have not stopped"


def remark(thread, kind, **what):
    """An event of a Chrome trace that says something of a thread of this process."""
    return {"ph": "M", "pid": os.getpid(), "tid": thread, "name": kind, "args": what}


class Profilers:
    """What torch's profiler calls on the ranks of one run."""

    def __init__(self, scheduler):
        self.scheduler = scheduler
        self.session = None

    def prepare(self, *settings, **more):
        """``torch.autograd.profiler`` is about to start."""
        rank = self.scheduler.me().rank
        if self.session is None and torch_internals.profiler_is_on():
            raise RuntimeError(
                f"profiler on rank {rank}: one already runs around launch, and torch allows one per process. Start it "
                "on the ranks or in the kernel, not in both"
            )
        if self.session and rank in self.session.profiling:
            raise RuntimeError(f"profiler on rank {rank}: it is already running, and a rank can have only one")

    def enable(self, config, activities, *settings, **more):
        """The running rank joins the session. What is set besides differs from one torch to the next."""
        if self.session is None:
            self._begin(config, activities)
        rank = self.scheduler.me().rank
        self.session.ranks[threading.get_native_id()] = rank
        self.session.profiling.add(rank)
        torch_internals.be_profiled(True)

    def _begin(self, config, activities):
        """In the kernel's thread: the profiler complains when another one is its first."""
        begun = Future()
        self.scheduler.notices.put(lambda: begun.set_result(torch_internals.begin_profiling(config, activities)))
        begun.result()
        self.session = ProfilerSession()

    def disable(self):
        """The running rank leaves it. What its events will be found in."""
        session, rank = self.session, self.scheduler.me().rank
        torch_internals.be_profiled(False)
        session.profiling.discard(rank)
        if not session.profiling:
            self.end()
        return Result(session, rank, self.scheduler)

    def end(self):
        """The session is over, for all."""
        session, self.session = self.session, None
        if session:
            session.result = torch_internals.end_profiling()
            self.scheduler.set(session)


class Result:
    """Stands for torch's ``_ProfilerResult``: the events of one rank of a session."""

    def __init__(self, session, rank, scheduler):
        self.session, self.rank, self.scheduler = session, rank, scheduler

    @property
    def whole(self):
        self._wait()
        return self.session.result

    def _wait(self):
        if not self.session.done:  # it may be read when the run is over
            self.scheduler.wait(self.session)

    def trace_start_ns(self):
        return self.whole.trace_start_ns()

    def events(self):
        return [event for event in self.whole.events() if self._owns(event.device_resource_id())]

    def experimental_event_tree(self):
        first = {event.start_thread_id() for event in self.events()}
        return [root for root in self.whole.experimental_event_tree() if root.start_tid in first]

    def save(self, path):
        """A trace for Chrome or Perfetto, of all ranks."""
        self._wait()
        Path(path).write_text(self.session.trace)

    def _owns(self, thread):
        return self.session.ranks.get(thread) == self.rank
