"""Keys that are pressed in a terminal, one by one, without waiting for Enter."""

import sys
from contextlib import contextmanager


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
