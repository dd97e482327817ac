"""What holds for all tests: no verdict from a clock or by luck, and interrupts that arrive."""

import os
import signal
import sys

import torch
from hypothesis import settings

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported: tinydist does that, by way of torch

from tinydist.processes import pool

# Python ignores the interrupts that tests send if it was started in the background of a script.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("tinydist", deadline=None, derandomize=True, database=None)
settings.load_profile("tinydist")

if sys.platform == "linux":  # elsewhere a fork may not use all that is loaded
    import warm

    pool.start_worker = warm.start_worker  # workers share one process in which torch is loaded
