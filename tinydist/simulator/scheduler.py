"""A cooperative scheduler: one thread per rank, and a run lock, so that only one rank runs at a time (as with the GIL).

The run lock passes where a rank waits, polls or ends, to the rank that has been ready for longest, so a program runs in
the same order every time. If no rank is ready and some still wait, that is a deadlock, detected immediately. The thread
that started the ranks is notified (supervisor.py).

Imports no torch: a rank is any function that waits for events.
"""

import queue
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress

POLLS, POLL_SECONDS = 1000, 1.0  # ranks that only poll, more often and longer than this, are stuck
ENDED, DEADLOCK = "all ranks have ended", "no rank can run"
of_thread = threading.local()  # .scheduler: of the rank whose thread it is


def scheduler_here():
    """The scheduler of this thread's rank; None in a thread that is no rank."""
    return getattr(of_thread, "scheduler", None)


def rank_alone():
    """The scheduler of this thread's rank if that is the only one, which may launch ranks; or else None."""
    scheduler = scheduler_here()
    return scheduler if scheduler and len(scheduler.tasks) == 1 else None


class Abort(BaseException):
    """Raised in a rank to unwind it after another one failed. Not an Exception: ``except`` must not stop it."""


class TimedOut(RuntimeError):
    """A wait timed out."""


class Waitable:
    """Something that a rank can wait for. Once done, always done."""

    __slots__ = ("done", "given_up", "transfer", "waiters")

    def __init__(self):
        self.done = self.given_up = False
        self.waiters = []
        self.transfer = None  # what is recorded of it


class RankThread:
    """A rank's thread, the lock that it sleeps on, and the event that it waits for."""

    def __init__(self, rank):
        self.rank = rank
        self.sleep = threading.Lock()  # released where the rank is given the run lock
        self.sleep.acquire()
        self.parked = True  # blocked until then
        self.thread = self.ident = None
        self.event = None
        self.deadline = None  # of the wait for the event
        self.ended = False
        self.result = None


class RankScheduler:
    """Runs a function for each of ``ranks``, each on a thread of its own, one at a time.

    ``enter(rank)`` and ``leave(rank)`` are called, with the run lock held, when a rank acquires and releases it.
    ``random`` (a random.Random) picks the next rank, also when messages are issued; None: first come, first served.
    """

    def __init__(self, ranks, *, enter, leave, random=None):
        self.tasks = [RankThread(rank) for rank in ranks]
        self.enter, self.leave = enter, leave
        self.random = random
        self.ready = deque(self.tasks)
        self.running = None
        self.alive = len(self.tasks)
        self.switches = 0
        self.now = 0.0  # seconds that ranks have waited without success
        self.polls, self.quiet_since = 0, None  # polls since something last happened
        self.aborting = False
        self.is_lent = False
        self.notices = queue.SimpleQueue()  # to the supervisor: an exception, ENDED, DEADLOCK, or what it shall call

    # What a rank calls.

    def me(self):
        """The running task. RuntimeError in a thread that is no rank."""
        task = self.running
        if task is None or threading.get_ident() != task.ident:
            if any(task.thread is threading.current_thread() for task in self.tasks):
                raise Abort  # it goes on after it was stopped
            if self.aborting:
                raise RuntimeError(
                    "the run of these ranks has ended: their process groups and Work handles "
                    "are valid only until launch returns"
                )
            raise RuntimeError(
                f"thread {threading.current_thread().name!r} is not a rank: on simulated ranks only the rank's own "
                "thread can communicate, not a thread started by the program"
            )
        return task

    def wait(self, event, timeout=None):
        """Block the running rank until ``event`` is set; TimedOut after ``timeout`` seconds. Returns its task.

        Time passes only when no rank can run: then the timeout that ends first expires, alone.
        """
        task = self.me()
        if not event.done:
            task.event = event
            task.deadline = None if timeout is None else self.now + timeout
            event.waiters.append(task)
            self._pass_on(task)
            task.deadline = None
            if not event.done:
                event.given_up = True
                call, peers = event.wait_in_words()
                raise TimedOut(f"{call}: Timed out after {timeout:g} s; {peers}")
            task.event = None
        return task

    def give_way(self):
        """Go to the end of the ready queue: for the last rank to arrive, so that ranks resume in order of arrival."""
        task = self.me()
        self.ready.append(task)
        self._pass_on(task)

    def set(self, event):
        """Set ``event``: ranks that wait for it become ready, in order of arrival."""
        event.done = True
        self.ready.extend(event.waiters)

    def pause(self):
        """Yield to the other ranks: for a rank that polls."""
        task = self.me()
        task.event = None  # one that it no longer waits for
        self.polls += 1
        self.quiet_since = self.quiet_since or time.monotonic()
        if self.polls > POLLS * (len(self.ready) + 1) and time.monotonic() - self.quiet_since > POLL_SECONDS:
            self._stop_here(task)
        self.give_way()

    def issue(self):
        """The running rank is about to communicate. In a random order, another one may go first."""
        task = self.me()
        self.polls, self.quiet_since = 0, None
        if self.random and self.random.random() < 0.5:
            self.give_way()
        return task

    @contextmanager
    def lent(self):
        """Context: the only rank waits for ranks that it has launched."""
        self.is_lent = True
        try:
            yield
        finally:
            self.is_lent = False

    # How the run lock passes.

    def begin(self):
        self._hand_to(self._pick())

    def _pick(self):
        if self.random:
            self.ready.rotate(-self.random.randrange(len(self.ready)))
        return self.ready.popleft()

    def _pass_on(self, task):
        if self.aborting:
            raise Abort
        if not self.ready and not self._time_passes():
            self._stop_here(task)
        following = self._pick()
        if following is not task:
            self.leave(task.rank)
            self._hand_to(following)
            self._park(task)
            self.enter(task.rank)

    def _hand_to(self, task):
        self.switches += 1
        self.running = task
        task.sleep.release()

    def _park(self, task):
        task.parked = True
        task.sleep.acquire()
        task.parked = False
        if self.aborting:
            raise Abort

    def _time_passes(self):
        """No rank can run: advance to the next deadline. Returns whether a rank's wait timed out."""
        late = min((task for task in self.tasks if task.deadline is not None), key=deadline, default=None)
        if late is not None:
            self.now = late.deadline
            late.deadline = None
            late.event.waiters.remove(late)
            self.ready.append(late)
        return late is not None

    def _stop_here(self, task):
        self.notices.put(DEADLOCK)
        self._park(task)

    # The life of a rank's thread.

    def live(self, task, body):
        task.ident, of_thread.scheduler = threading.get_ident(), self
        try:
            self._park(task)
            self.enter(task.rank)
            task.result = body(task.rank)
        except Abort:
            task.ended = True
        except BaseException as failure:
            task.ended = True
            if not self.aborting:
                with suppress(Exception):  # it may have replaced its notes
                    failure.add_note(f"on rank {task.rank} of {len(self.tasks)}")
                self.notices.put(failure)
                return
        if not self.aborting:
            self._end(task)

    def _end(self, task):
        task.ended = True
        self.alive -= 1
        self.polls, self.quiet_since = 0, None
        self.leave(task.rank)
        if self.alive == 0:
            self.notices.put(ENDED)
        elif self.ready or self._time_passes():
            self._hand_to(self._pick())
        else:
            self.notices.put(DEADLOCK)


def deadline(task):
    return task.deadline
