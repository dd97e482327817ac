"""The supervisor: starts the ranks and monitors them, from the thread that launched them.

It handles their requests (prints), checks whether one blocks the others, and on a failure or interrupt unwinds all of
them, one after another. However a run ends, all its threads end, except one that is blocked in native code.
"""

import math
import os
import queue
import signal
import threading
import time
from contextlib import contextmanager

from .call_sites import LIBRARIES, site_of
from .deadlock import deadlock_report
from .scheduler import DEADLOCK, ENDED, Abort
from .stuck import Hold, frame_of, raise_in

UNWIND_SECONDS = 10.0  # for ranks to tidy up when they are stopped; at most, for one that native code keeps
MOMENT = 0.2  # seconds in which a rank that is not in native code has stopped


class Supervisor:
    """``explain(tasks)``: the exception for when no rank can run. ``idle_timeout``, ``cpu_timeout``: see ``Hold``."""

    def __init__(self, scheduler, *, explain=deadlock_report, idle_timeout=60.0, cpu_timeout=math.inf):
        self.scheduler, self.explain = scheduler, explain
        self.idle_timeout, self.cpu_timeout = idle_timeout, cpu_timeout

    def run(self, body):
        """What ``body(rank)`` returned, by rank.

        Raises the exception of the rank that failed first; what ``explain`` gives; StuckError; KeyboardInterrupt, which
        has a note of what was running.
        """
        scheduler = self.scheduler
        live = pinned(scheduler.live)
        try:
            for task in scheduler.tasks:
                task.thread = threading.Thread(target=live, args=(task, body), name=f"rank {task.rank}", daemon=True)
                task.thread.start()
            scheduler.begin()
            self._listen()
            return [task.result for task in scheduler.tasks]
        except KeyboardInterrupt as pressed:
            self._note_line(pressed)
            raise
        finally:
            self._unwind()

    def _listen(self):
        hold = Hold(self.scheduler, self.idle_timeout, self.cpu_timeout)
        while True:
            hold.check()
            try:
                notice = self.scheduler.notices.get(timeout=min(1.0, self.idle_timeout / 4))
            except queue.Empty:
                continue
            if notice is ENDED:
                return
            if notice is DEADLOCK:
                raise self.explain(self.scheduler.tasks)
            if isinstance(notice, BaseException):
                raise notice
            notice()

    def _note_line(self, pressed):
        """Note which rank was running and its line, if it has come to one."""
        task = self.scheduler.running
        frame = task and frame_of(task.thread)
        site = frame and site_of(frame)
        if site and not site.code.co_filename.startswith(LIBRARIES):
            pressed.add_note(f"rank {task.rank} was running\n  at {site}")

    @contextmanager
    def interruptible(self):
        """Context: an interrupt is queued as a notice to stop the ranks. A KeyboardInterrupt could be raised at any
        line of this file, also while it starts ranks, stops them or cleans up."""
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
        """Stop the remaining ranks one after another: the running one first, or last if it is blocked in native code.
        A rank that does not return in time stops when it returns from native code."""
        scheduler = self.scheduler
        scheduler.aborting = True
        started = [task for task in scheduler.tasks if task.thread]
        running = [task for task in started if task is scheduler.running]
        self._stop(running, MOMENT)
        self._stop([task for task in started if task not in running], UNWIND_SECONDS)
        self._stop(running, min(UNWIND_SECONDS, max(1.0, self.idle_timeout)))
        scheduler.running = None
        for task in scheduler.tasks:
            task.result = None
            if task.thread and not task.thread.is_alive():
                task.thread = None  # now, not later: an interrupt that hits its finalizer would be lost

    def _stop(self, tasks, seconds):
        deadline = time.monotonic() + seconds
        while tasks := [task for task in tasks if task.thread.is_alive()]:
            for task in tasks:
                if task.parked and task.sleep.locked():
                    task.sleep.release()
                elif not task.ended:
                    raise_in(task.thread, Abort)
                task.thread.join(min(1.0, seconds))
            if time.monotonic() > deadline:
                return


def pinned(live):
    """``live``, on one processor (Linux): a rank that wakes there cannot start before the GIL is released."""
    if not hasattr(os, "sched_setaffinity"):
        return live
    processors = sorted(os.sched_getaffinity(0))
    processor = processors[os.getpid() % len(processors)]

    def live_there(*args):
        os.sched_setaffinity(0, {processor})
        live(*args)

    return live_there
