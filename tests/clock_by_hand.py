"""Stands in for the module ``time`` of what waits: time goes on when a test says so, however busy the machine is."""

import queue
import threading
import time

DAY = 86400.0  # seconds
GUARD = 100.0  # seconds of the real clock: after these a test fails, and says so


class ToldAtOnce(queue.SimpleQueue):
    """Stands in for a scheduler's notices, where nobody waits for a timeout: what is not told does not come."""

    def get(self, timeout):
        try:
            return super().get(timeout=GUARD)
        except queue.Empty:
            raise AssertionError("nobody told the supervisor") from None


class ClockByHand:
    """Who looks reads ``monotonic`` first, and then ``process_time`` as it was at that moment."""

    def __init__(self):
        self.moment = self.seen = (0.0, 0.0)  # seconds that have passed, and those of the processor
        self.looked = threading.Event()

    def monotonic(self):
        self.seen = self.moment
        self.looked.set()
        return self.seen[0]

    def process_time(self):
        return self.seen[1]

    def go_on(self, computing=False):
        """For the length of a day, after the next look at the clock."""
        self.looked.clear()
        assert self.looked.wait(GUARD), "nobody looks at the clock"
        self.a_day_passes(computing)

    def a_day_passes(self, computing):
        now, computed = self.moment
        self.moment = now + DAY, computed + DAY * computing


def until(condition):
    """Busy, until it holds."""
    end = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < end, "it never came"
