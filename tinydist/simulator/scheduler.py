"""One thread a rank, one baton: only the rank that holds the baton runs.

The baton passes where a rank waits, polls or ends, to the rank that has been ready for longest, so a program
runs in the same order every time. When no rank is ready and some still wait, that is a deadlock, known at
once. The thread that calls ``run`` supervises: it does what the ranks ask of it (prints), notices a rank that
is stuck in native code, and unwinds the others when one fails.

Imports no torch: a rank is any function that waits for events.
"""

import ctypes
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections import deque
from contextlib import contextmanager
from functools import partial

POLLS, POLL_SECONDS = 1000, 1.0  # ranks that only poll, more often and longer than this, are stuck
UNWIND_SECONDS = 10.0  # patience with a thread in native code when the ranks are stopped


class Abort(BaseException):
    """Unwinds a rank after another one failed. Not an Exception: a program's ``except`` must not stop it."""


class StuckError(RuntimeError):
    """A rank holds the baton and neither computes nor communicates."""


class Event:
    """Something that a rank can wait for. Once done, always done."""

    __slots__ = ("done", "transfer", "waiters")

    def __init__(self):
        self.done = False
        self.waiters = []
        self.transfer = None  # what is recorded of it


class Task:
    """A rank's thread, its baton, and the event that it waits for."""

    def __init__(self, rank):
        self.rank = rank
        self.baton = threading.Lock()
        self.baton.acquire()
        self.parked = False  # blocked until it is given the baton
        self.thread = None
        self.event = None
        self.ended = False
        self.result = None


class Scheduler:
    """Runs a function for each of ``ranks``, each on a thread of its own, one at a time.

    ``enter(rank)`` and ``leave(rank)`` are called, baton in hand, when a rank takes it up and lays it down.
    ``random`` (a random.Random) picks who runs next, also where messages are issued; None: first come, first served.
    """

    def __init__(self, ranks, *, enter, leave, random=None):
        self.tasks = [Task(rank) for rank in ranks]
        self.enter, self.leave = enter, leave
        self.random = random
        self.ready = deque(self.tasks)
        self.running = None
        self.alive = len(self.tasks)
        self.switches = 0
        self.polls, self.quiet_since = 0, None  # polls since something last happened
        self.aborting = False
        self.notices = queue.SimpleQueue()  # what the supervisor shall call; None when all ranks have ended

    # What a rank calls.

    def me(self):
        """The running task. RuntimeError in a thread that is no rank."""
        task = self.running
        if task is None or threading.get_ident() != task.thread.ident:
            if any(task.thread is threading.current_thread() for task in self.tasks):
                raise Abort  # it goes on after it was stopped
            raise RuntimeError(
                f"thread {threading.current_thread().name!r} is not a rank: on simulated ranks only the rank's own "
                "thread can communicate, not one that the program starts beside it"
            )
        return task

    def wait(self, event):
        """Block the running rank until ``event`` is done."""
        if not event.done:
            task = self.me()
            task.event = event
            event.waiters.append(task)
            self._pass_on(task)
            task.event = None

    def give_way(self):
        """Go to the end of the queue: for the last to arrive, so that ranks go on in the order in which they came."""
        task = self.me()
        self.ready.append(task)
        self._pass_on(task)

    def set(self, event):
        """``event`` is done: those who wait for it become ready, in the order in which they came."""
        event.done = True
        self.ready.extend(event.waiters)

    def pause(self):
        """Let the others run first: for a rank that polls."""
        task = self.me()
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

    # How the baton passes.

    def _pick(self):
        if self.random:
            self.ready.rotate(-self.random.randrange(len(self.ready)))
        return self.ready.popleft()

    def _pass_on(self, task):
        if self.aborting:
            raise Abort
        if not self.ready:
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
        task.baton.release()

    def _park(self, task):
        task.parked = True
        task.baton.acquire()
        task.parked = False
        if self.aborting:
            raise Abort

    def _stop_here(self, task):
        self.notices.put(self._deadlock)
        self._park(task)

    # The life of a rank's thread.

    def _live(self, task, body):
        try:
            self._park(task)
            self.enter(task.rank)
            task.result = body(task.rank)
        except Abort:
            pass
        except BaseException as failure:
            task.ended = True
            if not self.aborting:
                failure.add_note(f"on rank {task.rank} of {len(self.tasks)}")
                self.notices.put(partial(self._fail, failure))
                return
        if not self.aborting:
            self._end(task)

    def _end(self, task):
        task.ended = True
        self.alive -= 1
        self.polls, self.quiet_since = 0, None
        self.leave(task.rank)
        if self.alive == 0:
            self.notices.put(None)
        elif self.ready:
            self._hand_to(self._pick())
        else:
            self.notices.put(self._deadlock)

    # The supervisor's side.

    def run(self, body, *, explain, patience=60.0, pin=False):
        """What ``body(rank)`` returned, by rank.

        Raises the exception of the rank that failed first; ``explain(tasks)``, an exception, when no rank can run;
        StuckError when the running rank neither computes nor communicates for ``patience`` seconds. ``pin`` keeps
        all threads on one processor, where passing the baton is faster (Linux).
        """
        self.explain = explain
        live = pinned(self._live) if pin else self._live
        try:
            for task in self.tasks:
                task.thread = threading.Thread(target=live, args=(task, body), name=f"rank {task.rank}", daemon=True)
                task.thread.start()
            self._hand_to(self._pick())
            self._supervise(patience)
        finally:
            self._unwind()
        return [task.result for task in self.tasks]

    def _supervise(self, patience):
        seen = quiet = None
        while True:
            try:
                notice = self.notices.get(timeout=1.0)
            except queue.Empty:
                # Compute moves the processor's clock, communication the count of switches.
                now = self.switches, round(time.process_time() / 0.05 / patience)
                if now != seen:
                    seen, quiet = now, time.monotonic()
                elif time.monotonic() - quiet > patience:
                    raise self._stuck(patience) from None
                continue
            if notice is None:
                return
            notice()

    @contextmanager
    def interruptible(self):
        """The reader's interrupt stops the ranks: a notice to the supervisor, where KeyboardInterrupt could come at any
        line of it, also while it starts the ranks, stops them or tidies up."""
        ours = threading.current_thread() is threading.main_thread()
        if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        pressed = []
        signal.signal(signal.SIGINT, lambda *_: pressed.append(self.notices.put(self._interrupt)))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if pressed:
            self._interrupt()  # it came when all ranks had ended

    def _interrupt(self):
        raise KeyboardInterrupt

    def _fail(self, failure):
        raise failure

    def _deadlock(self):
        raise self.explain(self.tasks)

    def _stuck(self, patience):
        task = self.running
        stack = "".join(traceback.format_stack(sys._current_frames()[task.thread.ident]))
        return StuckError(
            f"rank {task.rank} has held the baton for {patience:g} s without computing or communicating: it sleeps or "
            f"is blocked in native code, while the other ranks cannot run. Its stack:\n{stack}"
        )

    def _unwind(self):
        """Stop what still runs, one rank after another, the running one first."""
        self.aborting = True
        deadline = time.monotonic() + UNWIND_SECONDS
        started = [task for task in self.tasks if task.thread]
        for task in sorted(started, key=lambda task: task is not self.running):
            while task.thread.is_alive() and time.monotonic() < deadline:
                if task.parked and task.baton.locked():
                    task.baton.release()
                elif not task.ended:
                    ident = ctypes.c_ulong(task.thread.ident)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Abort))
                task.thread.join(1.0)
        self.running = None
        for task in self.tasks:
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
