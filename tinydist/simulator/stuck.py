"""The report on a stuck rank, which holds the run lock: it sleeps, is in native code, or is in an infinite loop."""

import ctypes
import sys
import time
import traceback

from .call_sites import site_of

BUSY = 0.02  # of the time: who has the processor for less, also on a busy machine, does not compute
IMPORTING = "<frozen importlib._bootstrap>"


class StuckError(RuntimeError):
    """``rank`` has held the run lock for ``seconds`` and has not communicated. ``computes``: whether it was busy."""

    def __init__(self, rank, seconds, computes, frame):
        self.rank, self.seconds, self.computes, self.site = rank, seconds, computes, site_of(frame)
        doing = "a long computation or an infinite loop" if computes else "a sleep or a blocking call in native code"
        super().__init__(
            f"rank {rank} has held the run lock for {seconds:g} s {'of' if computes else 'without'} computing "
            f"{'without' if computes else 'or'} communicating: {doing}.\n"
            f"  at {self.site}\nIts stack:\n{''.join(traceback.format_stack(frame))}"
        )


class Hold:
    """Watchdog: measures how long the running rank has held the run lock; call ``check`` periodically.

    It may be idle for ``idle_timeout`` seconds, and compute for ``cpu_timeout`` seconds of CPU time, independent of the
    load of the machine. Importing modules counts as neither.
    """

    def __init__(self, scheduler, idle_timeout, cpu_timeout):
        self.scheduler, self.idle_timeout, self.cpu_timeout = scheduler, idle_timeout, cpu_timeout
        self.switches = None

    def check(self):
        """StuckError if that is too long."""
        task, now, used = self.scheduler.running, time.monotonic(), time.process_time()
        if task.parked or task.ended:
            return
        if self.scheduler.is_lent:  # those that it has launched have a watchdog of their own
            self.switches = None
            return
        if self.switches != self.scheduler.switches or importing(task.thread):
            self.switches, self.taken = self.scheduler.switches, used
            self.busy = now, used
        elif used - self.busy[1] > BUSY * self.idle_timeout:
            self.busy = now, used
        computes = used - self.taken > self.cpu_timeout
        if computes or now - self.busy[0] > self.idle_timeout:
            frame = frame_of(task.thread)
            if frame:
                raise StuckError(task.rank, self.cpu_timeout if computes else self.idle_timeout, computes, frame)


# Another thread, from outside.


def frame_of(thread):
    """Where it is; None if it has not begun or has ended."""
    return sys._current_frames().get(thread.ident)


def importing(thread):
    frame = frame_of(thread)
    while frame is not None and frame.f_code.co_filename != IMPORTING:
        frame = frame.f_back
    return frame is not None


def raise_in(thread, kind):
    """Raise ``kind()`` at the Python line where ``thread`` is, or when it is back there from native code. Not while it
    imports: a module that is left half imported stays broken, for all who use it later."""
    if not importing(thread):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(kind))
