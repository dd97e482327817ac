"""Threads that a rank starts see its GPUs: libraries load weights in them."""

import threading

from torch.utils._python_dispatch import TorchDispatchMode

from .device_mode import CallsNoted
from .rank_gpus import of_thread

Thread = threading.Thread
start_before, run_before = Thread.start, Thread.run


def start(thread):
    thread.gpus_of_its_rank = of_thread.gpus
    start_before(thread)


def run(thread):
    gpus = of_thread.gpus = getattr(thread, "gpus_of_its_rank", None)
    if gpus is None:
        return run_before(thread)
    TorchDispatchMode.__enter__(gpus.observer)  # its own begins the rank's record
    try:
        with CallsNoted():
            run_before(thread)
    finally:
        TorchDispatchMode.__exit__(gpus.observer, None, None, None)


METHODS = {"start": start, "run": run}
