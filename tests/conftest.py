"""What holds for all tests: no verdict from a clock or by luck, and interrupts that arrive."""

import signal

from hypothesis import settings

# Python ignores the interrupts that tests send if it was started in the background of a script.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("tinydist", deadline=None, derandomize=True, database=None)
settings.load_profile("tinydist")
