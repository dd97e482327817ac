"""Stands in for the module ``time`` of what waits: time goes on when a test says so, however busy the machine is."""

import queue
import threading
import time

GUARD = 100.0  # seconds of the real clock: after these a test fails, and says so


class ToldAtOnce(queue.SimpleQueue):
    """Stands in for a scheduler's notices, where nobody waits for a timeout: what is not told does not come."""

    def get(self, timeout):
        try:
            return super().get(timeout=GUARD)
        except queue.Empty:
            raise AssertionError("nobody told the supervisor") from None


class ClockByHand:
    def __init__(self):
        self.now = self.computed = 0.0
        self.looked = threading.Event()

    def monotonic(self):
        now = self.now
        self.looked.set()
        return now

    def process_time(self):
        return self.computed

    def go_on(self, computing=False):
        """For the length of a day, after the next look at the clock."""
        self.looked.clear()
        assert self.looked.wait(GUARD), "nobody looks at the clock"
        if computing:
            self.computed += 86400.0
        self.now += 86400.0


def until(condition):
    """Busy, until it holds."""
    end = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < end, "it never came"
