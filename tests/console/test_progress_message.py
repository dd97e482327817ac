"""The line that a reader sees while he waits: it comes late, says what goes on, and leaves nothing."""

import contextlib
import io
import os
import sys
import threading
from pathlib import Path

import pytest
import torch.distributed as dist
from jupyter_client.manager import start_new_kernel

import tinydist
from tinydist.console import progress_message as module
from tinydist.console.progress_message import aside, progress_message
from tinydist.processes.pool import pool


@pytest.fixture
def reader(monkeypatch):
    """Sees a line at once. ``reader.shown``: what it said; ``seen()`` waits until it says something."""

    class Line:
        shown, event = [], threading.Event()

        def show(self, text):
            self.shown.append(text)
            self.event.set()

        def vanish(self):
            self.shown.append("")

        aside = staticmethod(contextlib.nullcontext)

        @classmethod
        def seen(cls):
            cls.event.clear()
            return cls.event.wait(60)

    monkeypatch.setattr(module, "line_here", Line)
    monkeypatch.setattr(module, "DELAY", 0)
    monkeypatch.setattr(module, "AGAIN", 0.001)
    return Line


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def lines(self):
        """What is on the screen: a carriage return goes back to the start of the line."""
        return [line.rsplit("\r", 1)[-1].rstrip() for line in self.getvalue().split("\n")]


def test_the_line_says_all_that_is_going_on_and_vanishes(reader):
    with progress_message("check ring"):
        with progress_message(lambda: "3 of 19"):
            assert reader.seen() and reader.seen()
        assert reader.shown[-1] == "check ring · 3 of 19 (0 s)"
    assert reader.shown[-1] == "" and reader.shown.count("") == 1
    assert "progress line" not in [thread.name for thread in threading.enumerate()]


def test_it_vanishes_after_a_failure(reader):
    with pytest.raises(KeyboardInterrupt), progress_message("long"):
        assert reader.seen()
        raise KeyboardInterrupt
    assert reader.shown[-1] == "" and module.messages == []


def test_nothing_is_shown_before_the_delay(reader, monkeypatch):
    monkeypatch.setattr(module, "DELAY", 1000)
    with progress_message("short"):
        pass
    assert reader.shown == [""]


@pytest.mark.parametrize(
    "program, words", [("simulated", "2 simulated ranks: rank 1 runs"), ("gloo", "starting 2 gloo processes")]
)
def test_a_launch_says_where_it_is(reader, program, words):
    def wait():
        if program == "simulated" and dist.get_rank() == 1:
            reader.seen()

    pool.stop()
    tinydist.launch(wait if program == "simulated" else os.getpid, 2, backend=program)
    assert any(line.startswith(words) for line in reader.shown)


# In a terminal


def test_in_a_terminal_the_line_is_erased_and_prints_do_not_run_into_it(monkeypatch):
    terminal = Terminal()
    line = module.TerminalLine(terminal)
    line.show("starting 4 gloo processes")
    assert terminal.lines() == ["starting 4 gloo processes"]
    monkeypatch.setattr(module, "line", line)
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # a rank's own, as its stdout
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with aside():
        print("[rank 0] hello", file=terminal)
    assert terminal.lines() == ["[rank 0] hello", "starting 4 gloo processes"]
    line.vanish()
    assert terminal.lines() == ["[rank 0] hello", ""]


@pytest.mark.parametrize("hidden_by", [None, "TINYDIST_QUIET", "RANK", "a pipe"])
def test_who_sees_a_line(monkeypatch, hidden_by):
    for name in ("TINYDIST_QUIET", "RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stderr", io.StringIO() if hidden_by == "a pipe" else Terminal())
    if hidden_by in ("TINYDIST_QUIET", "RANK"):
        monkeypatch.setenv(hidden_by, "1")
    assert type(module.line_here()) is (type(None) if hidden_by else module.TerminalLine)


# In a notebook

CELL = """
import threading, progress_message as module

module.DELAY, module.AGAIN, shown, show = 0, 1000, threading.Event(), module.NotebookLine.show
module.NotebookLine.show = lambda line, text: (show(line, text), shown.set())
print("before")
with module.progress_message("starting"):
    shown.wait()
print("after")
"""


def test_in_a_notebook_the_output_is_empty_in_the_end(tmp_path):
    folder = Path(module.__file__).parent
    environment = {name: value for name, value in os.environ.items() if name != "TINYDIST_QUIET"}
    manager, client = start_new_kernel(env=environment | {"PYTHONPATH": str(folder)})
    said = []
    try:
        client.execute_interactive(CELL, timeout=60, output_hook=said.append)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    shown = [message for message in said if "display" in message["msg_type"]]
    assert [message["msg_type"] for message in shown] == ["display_data"] + ["update_display_data"] * 2
    assert [message["content"]["data"] for message in shown] == [{}, {"text/plain": "starting (0 s)"}, {}]
    assert len({message["content"]["transient"]["display_id"] for message in shown}) == 1
    assert "".join(message["content"].get("text", "") for message in said) == "before\nafter\n"
