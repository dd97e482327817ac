"""Queues, events, barriers and locks of ``multiprocessing``, between a script and the ranks that it has started.

A rank that waits lets the others run. A wait that can never end is part of the report of a deadlock. The script itself
waits by running the processes that it has started.
"""

import queue
from collections import deque

from ..simulator.scheduler import TimedOut, Waitable, rank_alone, scheduler_here
from .handover import Handover


class Change(Waitable):
    """An event: what a rank waits for in a call has changed."""

    __slots__ = ("call",)

    def __init__(self):
        super().__init__()
        self.call = ""

    def wait_in_words(self):
        return self.call, "no rank has done what it waits for"


class Shared:
    def __init__(self, start_waiting):
        """``start_waiting()`` runs the processes that the script has started; are there any?"""
        self.start_waiting, self.change = start_waiting, Change()

    def _wait(self, call, timeout=None):
        call = f"multiprocessing.{type(self).__name__}.{call}"
        scheduler = scheduler_here()
        if scheduler and not rank_alone():
            self.change.call = call
            scheduler.wait(self.change, timeout)
        elif not self.start_waiting():
            raise RuntimeError(f"{call}: no process is running that could end this wait")

    def _changed(self):
        """Let those look again that wait."""
        change, self.change = self.change, Change()
        if change.waiters:
            scheduler_here().set(change)


class Queue(Shared):
    def __init__(self, start_waiting, maxsize=0):
        super().__init__(start_waiting)
        self.maxsize, self.items = maxsize, deque()

    def put(self, item, block=True, timeout=None):
        while self.full():
            self._wait_or("put()", queue.Full, block, timeout)
        self.items.append(Handover(item))
        self._changed()

    def get(self, block=True, timeout=None):
        while not self.items:
            self._wait_or("get()", queue.Empty, block, timeout)
        item = self.items.popleft().unpack()
        self._changed()
        return item

    def _wait_or(self, call, error, block, timeout):
        if not block:
            scheduler = scheduler_here()
            if scheduler and not rank_alone():
                scheduler.pause()  # it may poll
            raise error
        try:
            self._wait(call, timeout)
        except TimedOut:
            raise error from None

    def put_nowait(self, item):
        self.put(item, block=False)

    def get_nowait(self):
        return self.get(block=False)

    def full(self):
        return 0 < self.maxsize <= len(self.items)

    def empty(self):
        return not self.items

    def qsize(self):
        return len(self.items)

    def close(self):
        pass

    join_thread = cancel_join_thread = close


class SimpleQueue(Queue):
    def __init__(self, start_waiting):
        super().__init__(start_waiting)


class Event(Shared):
    def __init__(self, start_waiting):
        super().__init__(start_waiting)
        self.flag = False

    def is_set(self):
        return self.flag

    def set(self):
        self.flag = True
        self._changed()

    def clear(self):
        self.flag = False

    def wait(self, timeout=None):
        try:
            while not self.flag:
                self._wait("wait()", timeout)
        except TimedOut:
            return False
        return True


class Semaphore(Shared):
    def __init__(self, start_waiting, value=1):
        super().__init__(start_waiting)
        self.value = value

    def acquire(self, block=True, timeout=None):
        try:
            while not self.value:
                if not block:
                    return False
                self._wait("acquire()", timeout)
        except TimedOut:
            return False
        self.value -= 1
        return True

    def release(self):
        self.value += 1
        self._changed()

    __enter__ = acquire

    def __exit__(self, *error):
        self.release()


class Lock(Semaphore):
    def __init__(self, start_waiting):
        super().__init__(start_waiting)


class Barrier(Shared):
    def __init__(self, start_waiting, parties):
        super().__init__(start_waiting)
        self.parties, self.n_waiting, self.rounds = parties, 0, 0

    def wait(self, timeout=None):
        place, this = self.n_waiting, self.rounds
        self.n_waiting += 1
        if self.n_waiting == self.parties:
            self.n_waiting, self.rounds = 0, self.rounds + 1
            self._changed()
        while self.rounds == this:
            self._wait("wait()", timeout)
        return place


KINDS = {kind.__name__: kind for kind in (Queue, SimpleQueue, Event, Semaphore, Lock, Barrier)}
REFUSED = ("JoinableQueue", "RLock", "BoundedSemaphore", "Condition", "Pipe")
