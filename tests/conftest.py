"""What holds for all tests: no verdict from a clock or by luck, interrupts that arrive, one thread for a sum."""

import faulthandler
import gc
import os
import shutil
import signal
import sys

import pytest
from hypothesis import settings

if not shutil.which("nvidia-smi"):  # Triton reads it when it is imported, which tinydist does by way of torch
    os.environ.setdefault("TRITON_INTERPRET", "1")

gc.disable()  # all that is loaded stays: garbage is looked for, in what tests leave, from the first of them on


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session):
    """A process that does not end after its last test says why, and ends. (A worker waits for the others.)"""
    if not hasattr(session.config, "workerinput"):
        faulthandler.dump_traceback_later(120, exit=True, file=sys.__stderr__)


# Python ignores the interrupts that tests send if it was started in the background of a script.
signal.signal(signal.SIGINT, signal.default_int_handler)

same = settings(deadline=None, derandomize=True, database=None)
settings.register_profile("every time", same, max_examples=25)
settings.register_profile("exhaustive", same, max_examples=100)
settings.load_profile("every time")


@pytest.fixture(scope="session", autouse=sys.platform == "linux")  # elsewhere a fork may not use all that is loaded
def workers_share_one_process_in_which_torch_is_loaded():
    import warm

    warm.start_workers_so()


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tensors are so small that threads would only wait for one another: `make processors` alone asks for two."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
