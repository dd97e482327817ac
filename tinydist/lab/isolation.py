"""Runs a check in a forked process, so that an answer can end, block or fill only that process.

Each run may take ``PATIENCE`` seconds of processor time, and the process ``MEMORY`` bytes more than it began with; the
caller's process looks after both. Only on Linux: elsewhere forking a process with threads is not safe, and the check
runs in the caller's process. This is no sandbox: what an answer does to files is done.
"""

import gc
import multiprocessing
import os
import signal
import sys
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

from ..console.progress_message import progress_message

PATIENCE = 15  # seconds of processor time, whatever else the machine does
IDLE = 75  # seconds without any: longer than a simulated rank may sleep
MEMORY = 8 * 2**30
AVAILABLE = sys.platform == "linux"
LOOK = 0.2  # seconds between two looks

_reports = None  # in a forked process: where it says what it does


class ProcessEnded(Exception):
    """An answer ended its process, or was stopped. ``str()`` says why."""


def run_isolated(function):
    """``function()``, whose result must be picklable, in a process of its own."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(sender, function), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads: the child uses none of them
        process.start()
    sender.close()
    words, case = "begins", "it"
    limits = _Limits(process.pid)
    try:
        with progress_message(lambda: words):
            while True:
                while not receiver.poll(LOOK):
                    if limits.ended() and not receiver.poll():  # it may have said its last since
                        raise EOFError
                    limits.look(case)
                kind, said = receiver.recv()
                if kind == "ends":
                    return said
                if kind == "case":
                    words, case = said
                limits.renew()
    except (EOFError, OSError):
        process.join()
        raise ProcessEnded(f"With {case}: {_why(process.exitcode)}") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with those that it has started
        process.kill()
        process.join()


class _Limits:
    """Of a process: what it takes of the processor in one run, how long it does nothing, and its memory."""

    def __init__(self, process):
        self.process = process
        _, _, self.first_bytes = self.taken()
        self.renew()

    def taken(self):
        """Whether it has ended, seconds of processor time, bytes."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        user, system, pages = int(fields[11]), int(fields[12]), int(fields[21])  # fields 14, 15, 24 of man 5 proc
        return fields[0] == "Z", (user + system) / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")

    def renew(self):
        _, self.began, _ = self.taken()
        self.last, self.since = self.began, time.monotonic()

    def ended(self):
        """Has it, while a process that it has forked may hold the other end of the pipe?"""
        return self.taken()[0]

    def look(self, case):
        _, seconds, size = self.taken()
        if seconds > self.last:
            self.last, self.since = seconds, time.monotonic()
        for beyond, words in [
            (
                seconds - self.began > PATIENCE,
                f"takes more than {PATIENCE} s of processor time, and was stopped. Is there a loop that does not end?",
            ),
            (size - self.first_bytes > MEMORY, f"takes more than {MEMORY / 2**30:g} GiB of memory, and was stopped"),
            (
                time.monotonic() - self.since > IDLE,
                f"does nothing for {IDLE} s, and was stopped. Does it wait for what never comes?",
            ),
        ]:
            if beyond:
                raise ProcessEnded(f"With {case}: it {words}")


def _why(status):
    if status == -signal.SIGKILL:
        return "its process was killed. Does it take more memory than there is?"
    how = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
    return f"it ends its process ({how}). A function ends by returning, or by raising an error"


def _child(sender, function):
    global _reports
    import torch

    os.setsid()  # a group of its own, which ends with it
    gc.freeze()  # so that gc.get_objects does not find the reference's results
    _reports = sender
    torch.set_num_threads(1)  # OpenMP's other threads are not here
    with memory_limited(MEMORY):
        sender.send(("ends", function()))


@contextmanager
def case_begins(number, count, case):
    """Say which one is run."""
    words = f"{number} of {count}: {case}"
    if _reports is not None:
        _reports.send(("case", (words, str(case))))
        yield
    else:
        with progress_message(words):
            yield


def run_begins():
    """What runs from here on may take ``PATIENCE`` more."""
    if _reports is not None:
        _reports.send(("run", None))


@contextmanager
def memory_limited(nbytes):
    """Of what is written besides what is there, so that an allocation is refused with the line that asked; of a stack
    all counts."""
    if not AVAILABLE:
        yield
        return
    import resource

    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(lines["VmData"].split()[0]) * 1024 + nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
