"""Another thread, from outside: where it is, and an exception raised in it, which alone stops one that never waits."""

import ctypes
import sys

IMPORTING = "<frozen importlib._bootstrap>"


def frame_of(thread):
    """Where it is; None if it has not begun or has ended."""
    return sys._current_frames().get(thread.ident)


def importing(thread):
    frame = frame_of(thread)
    while frame is not None and frame.f_code.co_filename != IMPORTING:
        frame = frame.f_back
    return frame is not None


def raise_in(thread, kind):
    """Raise ``kind()`` at the Python line where ``thread`` is, or when it is back there from native code. Not while it
    imports: a module that is left half imported stays broken, for all who use it later."""
    if not importing(thread):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(kind))
