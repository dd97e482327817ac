"""Starts the ranks and watches over them, from the thread that launched them.

It does what ranks ask of it (prints), notices one that is stuck in native code, and when one fails, or the reader
interrupts, unwinds all of them, one after another. However a run ends, no thread of it is left.
"""

import ctypes
import os
import queue
import signal
import sys
import threading
import time
import traceback
from contextlib import contextmanager

from .call_sites import site_of
from .scheduler import DEADLOCK, ENDED, Abort

UNWIND_SECONDS = 10.0  # at most: how long threads in native code are waited for when the ranks are stopped


class StuckError(RuntimeError):
    """A rank holds the baton and neither computes nor communicates, for so many ``seconds``. ``site``: where."""

    def __init__(self, rank, seconds, frame):
        self.rank, self.seconds, self.site = rank, seconds, site_of(frame)
        stack = "".join(traceback.format_stack(frame))
        super().__init__(
            f"rank {rank} has held the baton for {seconds:g} s without computing or communicating: it sleeps or is "
            f"blocked in native code, while the other ranks cannot run. Its stack:\n{stack}"
        )


class Supervisor:
    """``explain(tasks)`` gives the exception for when no rank can run. ``pin`` keeps all threads on one processor,
    where passing the baton is faster (Linux)."""

    def __init__(self, scheduler, *, explain, patience=60.0, pin=False):
        self.scheduler, self.explain, self.patience, self.pin = scheduler, explain, patience, pin

    def run(self, body):
        """What ``body(rank)`` returned, by rank.

        Raises the exception of the rank that failed first; what ``explain`` gives; StuckError when the running rank
        neither computes nor communicates for ``patience`` seconds.
        """
        scheduler = self.scheduler
        live = pinned(scheduler.live) if self.pin else scheduler.live
        try:
            for task in scheduler.tasks:
                task.thread = threading.Thread(target=live, args=(task, body), name=f"rank {task.rank}", daemon=True)
                task.thread.start()
            scheduler.begin()
            self._listen()
        finally:
            self._unwind()
        return [task.result for task in scheduler.tasks]

    def _listen(self):
        seen = quiet = None
        while True:
            try:
                notice = self.scheduler.notices.get(timeout=min(1.0, self.patience / 4))
            except queue.Empty:
                # Compute moves the processor's clock, communication the count of switches.
                now = self.scheduler.switches, round(time.process_time() / 0.05 / self.patience)
                if now != seen:
                    seen, quiet = now, time.monotonic()
                elif time.monotonic() - quiet > self.patience:
                    raise self._stuck() from None
                continue
            if notice is ENDED:
                return
            if notice is DEADLOCK:
                raise self.explain(self.scheduler.tasks)
            if isinstance(notice, BaseException):
                raise notice
            notice()

    def _stuck(self):
        task = self.scheduler.running
        return StuckError(task.rank, self.patience, sys._current_frames()[task.thread.ident])

    @contextmanager
    def interruptible(self):
        """The reader's interrupt stops the ranks: a notice, where KeyboardInterrupt could come at any line of this
        file, also while it starts the ranks, stops them or tidies up."""
        ours = threading.current_thread() is threading.main_thread()
        if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        pressed = []
        signal.signal(signal.SIGINT, lambda *_: pressed.append(self.scheduler.notices.put(KeyboardInterrupt())))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if pressed:
            raise KeyboardInterrupt  # it came when all ranks had ended

    def _unwind(self):
        """Stop what still runs, one rank after another, the running one first."""
        scheduler = self.scheduler
        scheduler.aborting = True
        deadline = time.monotonic() + min(UNWIND_SECONDS, self.patience)
        started = [task for task in scheduler.tasks if task.thread]
        for task in sorted(started, key=lambda task: task is not scheduler.running):
            while task.thread.is_alive() and time.monotonic() < deadline:
                if task.parked and task.baton.locked():
                    task.baton.release()
                elif not task.ended:
                    ident = ctypes.c_ulong(task.thread.ident)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Abort))
                task.thread.join(min(1.0, self.patience / 4))
        scheduler.running = None
        for task in scheduler.tasks:
            task.thread = None  # now, not later: an interrupt that hits its finalizer would be lost


def pinned(live):
    """``live``, on one processor: a rank that is woken there cannot start before the other has laid down the GIL."""
    if not hasattr(os, "sched_setaffinity"):
        return live
    processors = sorted(os.sched_getaffinity(0))
    processor = processors[os.getpid() % len(processors)]

    def live_there(*args):
        os.sched_setaffinity(0, {processor})
        live(*args)

    return live_there
