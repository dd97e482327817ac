"""No answer runs for ever: one that has computed for some seconds gets ``TooLong``, at the line where it is.

A loop that computes without end is no deadlock, and nobody but a clock can tell it from hard work. It is the
processor's clock, which a busy machine does not slow down.
"""

import ctypes
import threading
import time
from contextlib import contextmanager

TICK = 0.1  # seconds


class TooLong(BaseException):
    """Not an Exception: a learner's ``except Exception`` must not stop it."""


@contextmanager
def limit(seconds):
    """Gives a function that each thread of the answer calls when it starts."""
    started, over = {}, threading.Event()  # thread -> the processor's time

    def watch():
        while not over.wait(TICK):  # again and again: a bare `except:` catches one
            if started and time.process_time() - min(started.values()) > seconds:
                for thread in list(started):
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TooLong))

    watcher = threading.Thread(target=watch, name="time limit", daemon=True)
    watcher.start()
    try:
        yield lambda: started.setdefault(threading.get_ident(), time.process_time())
    finally:
        over.set()
        watcher.join()
