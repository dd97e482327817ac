"""Runs a check in a forked process, so that an answer can end, block or fill only that process.

Each run may take ``PATIENCE`` seconds of processor time, and the process ``MEMORY`` bytes more than it began with; the
operating system enforces both. Only on Linux: elsewhere forking a process with threads is not safe, and the check runs
in the caller's process. This is no sandbox: what an answer does to files is done.
"""

import multiprocessing
import signal
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

from ..console.progress_message import progress_message

PATIENCE = 15  # seconds of processor time, whatever else the machine does
MEMORY = 8 * 2**30
AVAILABLE = sys.platform == "linux"

_reports = None  # in a forked process: where it says what it does


class ProcessEnded(Exception):
    """An answer ended its process, or the operating system did. ``str()`` says why."""


def run_isolated(function):
    """``function()``, whose result must be picklable, in a process of its own."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(sender, function), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads: the child uses none of them
        process.start()
    sender.close()
    now = "begins", "it"
    try:
        with progress_message(lambda: now[0]):
            while True:
                ended, said = receiver.recv()
                if ended:
                    return said
                now = said
    except EOFError:
        process.join()
        raise ProcessEnded(f"With {now[1]}: {_why(process.exitcode)}") from None
    finally:
        process.kill()
        process.join()


def _why(status):
    if status == -signal.SIGXCPU:
        return f"it takes more than {PATIENCE} s of processor time, and was stopped. Is there a loop that does not end?"
    if status == -signal.SIGKILL:
        return "its process was killed. Does it take more memory than there is?"
    how = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
    return f"it ends its process ({how}). A function ends by returning, or by raising an error"


def _child(sender, function):
    global _reports
    import torch

    _reports = sender
    torch.set_num_threads(1)  # OpenMP's other threads are not here
    _limit_memory()
    sender.send((True, function()))


@contextmanager
def case_begins(number, count, case):
    """Say which one is run."""
    words = f"{number} of {count}: {case}"
    if _reports is not None:
        _reports.send((False, (words, str(case))))
        yield
    else:
        with progress_message(words):
            yield


def renew_time():
    """What runs from here on may take ``PATIENCE`` more."""
    if _reports is not None:
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + PATIENCE, most))


def _limit_memory():
    """Of what it may write; of a thread's stack all counts."""
    import resource

    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(lines["VmData"].split()[0]) * 1024 + MEMORY, most))
