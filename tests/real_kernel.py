"""A real kernel of IPython, for tests that press its stop button."""

import os
import textwrap
import time
from pathlib import Path

from clock_by_hand import GUARD
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parents[1]


class Kernel:
    """A kernel of IPython, and what comes of the cells that it runs."""

    def __init__(self):
        self.manager = KernelManager(kernel_name="python3")
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        hidden = ("PYTEST_CURRENT_TEST",)
        env = {name: value for name, value in os.environ.items() if name not in hidden}
        self.manager.start_kernel(
            env=env | {"PYTHONPATH": path}, extra_arguments=["--HistoryManager.hist_file=:memory:"]
        )
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=GUARD)

    def stop(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, code, interrupt_at=None):
        """Run a cell; press the stop button once it has printed ``interrupt_at``. (stdout, stderr, error)"""
        request = self.client.execute(textwrap.dedent(code))
        text, error, pressed = {"stdout": "", "stderr": ""}, None, False
        deadline = time.monotonic() + GUARD
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.0, deadline - time.monotonic()))
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                text[content["name"]] += content["text"]
            if message["msg_type"] == "error":
                error = content
            if interrupt_at and not pressed and interrupt_at in text["stdout"]:
                self.manager.interrupt_kernel()
                pressed = True
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                return text["stdout"], text["stderr"], error
