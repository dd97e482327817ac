"""No answer runs for ever: one that has computed for some seconds gets ``TooLong``, at the line where it is.

A loop that computes without end is no deadlock, and nobody but a clock can tell it from hard work. It is the
processor's clock, which a busy machine does not slow down. An answer may swallow ``TooLong``; ``Limit.passed``
remembers.
"""

import threading
import time
from contextlib import contextmanager

from ..simulator.stopping import raise_in

TICK = 0.1  # seconds


class TooLong(BaseException):
    """Not an Exception: a learner's ``except Exception`` must not stop it."""


class Limit:
    def __init__(self, seconds):
        self.seconds, self.passed = seconds, False
        self.started = {}  # thread -> the processor's time

    def start(self):
        """For the thread that calls it, the time counts from now."""
        self.started.setdefault(threading.current_thread(), time.process_time())

    def watch(self, over):
        while not over.wait(TICK):  # again and again: a bare `except:` catches one
            if self.started and time.process_time() - min(self.started.values()) > self.seconds:
                self.passed = True
                for thread in list(self.started):
                    raise_in(thread, TooLong)


@contextmanager
def limit(seconds):
    """While this lasts, threads that have called ``start`` may compute for so long."""
    limit, over = Limit(seconds), threading.Event()
    watcher = threading.Thread(target=limit.watch, args=[over], name="time limit", daemon=True)
    watcher.start()
    try:
        yield limit
    finally:
        over.set()
        watcher.join()
