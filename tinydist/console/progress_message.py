"""A progress message for long operations. It appears after one second and disappears when the operation ends.

In a notebook it is an output that is left without data, for which nothing is drawn, also when the saved file is opened.
Jupyter has no message that takes one output away: clear_output takes all of the cell, what was printed before, too; and
a stream whose text is erased stays, empty, or with all that was erased, as the frontend likes. So `make lab`, when it
saves a notebook, leaves outputs without data out.
In a terminal it is a line of stderr that is erased. A log or a pipe gets none, nor where TINYDIST_QUIET is set.
"""

import os
import sys
import threading
import time
from contextlib import contextmanager, nullcontext

DELAY = 1.0  # seconds in which nothing is shown
AGAIN = 0.5  # seconds from one state to the next

messages = []  # what is going on, from the outermost inwards
line = None  # where that is shown


@contextmanager
def progress_message(what):
    """Meanwhile show ``what``, or what ``what()`` returns, after the messages around it."""
    messages.append(what)
    try:
        with shown() if len(messages) == 1 else nullcontext():
            yield
    finally:
        messages.pop()


@contextmanager
def shown():
    """A thread writes the line: the one that the reader waits for may be in an import, or in native code."""
    global line
    line, over = line_here(), threading.Event()
    writer = threading.Thread(target=write, args=(line, over), name="progress line", daemon=True)
    if line:
        writer.start()
    try:
        yield
    finally:
        over.set()
        if line:
            writer.join()
        line = None


def line_here():
    """The line that the reader sees, if any."""
    if "TINYDIST_QUIET" in os.environ or "RANK" in os.environ:  # of the ranks under torchrun, all would write
        return None
    return NotebookLine() if in_notebook() else TerminalLine(sys.stderr) if sys.stderr.isatty() else None


def in_notebook():
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return shell is not None and shell.has_trait("kernel")


def write(line, over):
    began, pause = time.monotonic(), DELAY
    while not over.wait(pause):
        line.show(f"{in_words()} ({time.monotonic() - began:.0f} s)")
        pause = AGAIN
    line.vanish()


def in_words():
    return " · ".join(what() if callable(what) else what for what in tuple(messages))


def aside():
    """Context: output printed inside does not mix with the progress line."""
    return line.aside() if line else nullcontext()


class NotebookLine:
    output, aside = None, staticmethod(nullcontext)

    def show(self, text):
        if not self.output:
            from IPython.display import display

            self.output = display({}, raw=True, display_id=True)
        self.output.update({"text/plain": text}, raw=True)

    def vanish(self):
        if self.output:
            self.output.update({}, raw=True)


class TerminalLine:
    """``stream``: by and by, sys.stderr may be a rank's own."""

    bar = None

    def __init__(self, stream):
        self.stream = stream

    def show(self, text):
        if self.bar is None:
            from tqdm import tqdm  # only now: the doctor must start in a Python that has nothing

            self.bar = tqdm(total=0, bar_format="{desc}", leave=False, dynamic_ncols=True, file=self.stream)
        self.bar.set_description_str(text)

    def vanish(self):
        if self.bar is not None:
            self.bar.close()

    def aside(self):
        return self.bar.external_write_mode(self.stream) if self.bar is not None else nullcontext()
