"""Checks an exercise whenever its notebook is saved."""

import sys
from contextlib import contextmanager, suppress

from ..console.waiting import waiting_for
from . import commands
from .standing import Standing, path_of, shown, within_reach

POLL = 0.2  # seconds between two looks at the file
SAVED = "saved"


def watch(name, check):
    """Begin with the exercise of that name; None: the next one. ``check(name)`` says what holds and what does not.

    Ends when the reader presses q or Ctrl-C, and returns the name of the exercise at which he was.
    """
    entry = Standing(within_reach()).named(name)
    with waiting_for("loading torch"):
        from . import reader as reader  # once: the processes that check begin as copies of this one
    with suppress(KeyboardInterrupt), keys() as pressed:
        key = SAVED
        while key != "q":
            path = path_of(entry)
            before = state(path)
            if key == SAVED:
                check(entry.name)
            elif key == "h":
                commands.show_hint(entry.name)
            elif key == "n":
                entry = Standing(within_reach()).after(entry.name) or entry
                print(Standing(within_reach()).in_words(entry))
            print(f"\n{tell(entry)}", flush=True)
            key = next_event(path, before, pressed)
    return entry.name


def tell(entry):
    standing = Standing(within_reach())
    path = path_of(entry)
    return (
        f"{entry.chapter} {standing.dots(entry.chapter)}  {standing.count}\n"
        f"Watching {shown(path)}: save it, and {entry.name} is checked. n next, h hint, q quit"
    )


def state(path):
    """Another one each time that the file is written."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def next_event(path, before, pressed):
    """SAVED, or the key that is pressed first."""
    while True:
        key = pressed(POLL)
        if key:
            return key
        if path.exists() and state(path) != before:
            return SAVED


@contextmanager
def keys():
    """A function: the key that is pressed within so many seconds; "" if none is."""
    try:
        import select
        import termios
        import tty
    except ImportError:  # Windows: Ctrl-C ends it
        import time

        yield lambda seconds: time.sleep(seconds) or ""
        return
    before = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None
    if before:
        tty.setcbreak(sys.stdin)
    try:
        yield lambda seconds: (sys.stdin.read(1) or "q") if select.select([sys.stdin], [], [], seconds)[0] else ""
    finally:
        if before:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
