"""Calls that concern a process, made by a script on a rank: ``atexit.register`` is the rank's, signals do not come."""

import atexit
import os
import signal
import sys
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

from ..simulator.call_sites import is_library
from .interpreter import here

register, unregister, set_handler = atexit.register, atexit.unregister, signal.signal


def of_a_script(depth=2):
    """Is the caller a script's code, on a rank?"""
    interpreter = getattr(here, "interpreter", None)
    return interpreter is not None and not is_library[sys._getframe(depth).f_code.co_filename] and interpreter


def register_here(function, *args, **kwargs):
    interpreter = of_a_script()
    if not interpreter:
        return register(function, *args, **kwargs)
    interpreter.at_exit.append(partial(function, *args, **kwargs))
    return function


def unregister_here(function):
    interpreter = of_a_script()
    if interpreter:
        interpreter.at_exit[:] = [each for each in interpreter.at_exit if each.func is not function]
    unregister(function)


def set_handler_here(number, handler):
    """A rank is a thread, which Python lets handle no signal: Ctrl-C stops the job, others end it."""
    return signal.getsignal(number) if of_a_script() else set_handler(number, handler)


def exit_here(status):
    if of_a_script():
        raise SystemExit(status)
    leave_at_once(status)


leave_at_once = os._exit


@contextmanager
def process_calls_are_the_ranks():
    with (
        patch.object(atexit, "register", register_here),
        patch.object(atexit, "unregister", unregister_here),
        patch.object(signal, "signal", set_handler_here),
        patch.object(os, "_exit", exit_here),
    ):
        yield
