"""The report when one rank keeps the others from running: it sleeps, is in native code, or computes without end."""

import time
import traceback

from .call_sites import site_of
from .stopping import frame_of, importing

BUSY = 0.02  # of the time: who has the processor for less, also on a busy machine, does not compute


class StuckError(RuntimeError):
    """``rank`` has held the baton for ``seconds`` and has not communicated. ``computes``: is it busy meanwhile?"""

    def __init__(self, rank, seconds, computes, frame):
        self.rank, self.seconds, self.computes, self.site = rank, seconds, computes, site_of(frame)
        doing = "it computes, or is in a loop that never ends" if computes else "it sleeps or is blocked in native code"
        super().__init__(
            f"rank {rank} has held the baton for {seconds:g} s {'of' if computes else 'without'} computing "
            f"{'without' if computes else 'or'} communicating: {doing}, while the other ranks cannot run.\n"
            f"  at {self.site}\nIts stack:\n{''.join(traceback.format_stack(frame))}"
        )


class Hold:
    """How long the running rank has had the baton, for whoever calls ``check`` now and then.

    It may do nothing for ``patience`` seconds, and compute for ``limit`` seconds of the processor's time, which a busy
    machine does not slow down. Loading modules is neither.
    """

    def __init__(self, scheduler, patience, limit):
        self.scheduler, self.patience, self.limit = scheduler, patience, limit
        self.switches = None

    def check(self):
        """StuckError if that is too long."""
        task, now, used = self.scheduler.running, time.monotonic(), time.process_time()
        if task.parked or task.ended:
            return
        if self.switches != self.scheduler.switches or importing(task.thread):
            self.switches, self.taken = self.scheduler.switches, used
            self.busy = now, used
        elif used - self.busy[1] > BUSY * self.patience:
            self.busy = now, used
        computes = used - self.taken > self.limit
        if computes or now - self.busy[0] > self.patience:
            frame = frame_of(task.thread)
            if frame:
                raise StuckError(task.rank, self.limit if computes else self.patience, computes, frame)
