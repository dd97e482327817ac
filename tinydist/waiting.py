"""A line that says what is going on while the reader waits. It comes after a second, and vanishes in the end.

In a notebook it is an output that is left without data, for which nothing is drawn, also when the saved file is opened.
In a terminal it is a line of stderr that is erased. A log or a pipe gets none, nor where TINYDIST_QUIET is set.
"""

import os
import sys
import threading
import time
from contextlib import contextmanager, nullcontext

from tqdm import tqdm

DELAY = 1.0  # seconds in which nothing is shown
AGAIN = 0.5  # seconds from one state to the next

telling = []  # what is going on, from the outermost inwards


@contextmanager
def waiting_for(what):
    """While this lasts the reader is told ``what``, or what ``what()`` returns, after what is told around it."""
    telling.append(what)
    try:
        kind = kind_of_line() if len(telling) == 1 else None
        with shown(kind) if kind else nullcontext():
            yield
    finally:
        telling.pop()


def kind_of_line():
    """Where the reader sees one; else None."""
    if "TINYDIST_QUIET" in os.environ or "RANK" in os.environ:  # of the ranks under torchrun, all would write
        return None
    return NotebookLine if in_notebook() else TerminalLine if sys.stderr.isatty() else None


def in_notebook():
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return shell is not None and shell.has_trait("kernel")


@contextmanager
def shown(kind):
    """A thread writes the line: the one that the reader waits for may be in an import, or in native code."""
    over = threading.Event()
    writer = threading.Thread(target=write, args=(kind, over), name="progress line", daemon=True)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def write(kind, over):
    began, line = time.monotonic(), None
    while not over.wait(AGAIN if line else DELAY):
        line = line or kind()
        line.show(f"{in_words()} ({time.monotonic() - began:.0f} s)")
    if line:
        line.vanish()


def in_words():
    return " · ".join(what() if callable(what) else what for what in tuple(telling))


class NotebookLine:
    def __init__(self):
        from IPython.display import display

        self.output = display({}, raw=True, display_id=True)

    def show(self, text):
        self.output.update({"text/plain": text}, raw=True)

    def vanish(self):
        self.output.update({}, raw=True)


class TerminalLine:
    def __init__(self):
        self.bar = tqdm(total=0, bar_format="{desc}", leave=False, dynamic_ncols=True)

    def show(self, text):
        self.bar.set_description_str(text)

    def vanish(self):
        self.bar.close()


def aside():
    """What is printed while this lasts does not run into the line."""
    return tqdm.external_write_mode() if telling else nullcontext()
