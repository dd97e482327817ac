"""Tests send themselves interrupts, which a Python that was started in the background of a script ignores."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
