"""The command line in a terminal of its own, and who types there."""

import multiprocessing
import os
import pty
import select
import sys

import warm
from clock_by_hand import GUARD


class Terminal:
    def __init__(self, *words):
        self.screen, inner = pty.openpty()
        self.process = warm.Warm(dict(os.environ), command_line, os.ttyname(inner), os.getcwd(), words)
        assert self.read(1), "it never came to its terminal"
        os.close(inner)

    def read(self, most):
        """What comes next; nothing if it does not come."""
        return os.read(self.screen, most) if select.select([self.screen], [], [], GUARD)[0] else b""

    def until(self, text):
        """What is shown, up to that text."""
        shown, end = b"", text.replace("\n", "\r\n").encode()
        while end not in shown:
            came = self.read(4096)
            assert came, f"{text!r} did not come, but {shown!r}"
            shown += came
        return shown.decode().replace("\r\n", "\n")

    def type(self, keys, until):
        os.write(self.screen, keys.encode())
        return self.until(until)

    def end(self, keys):
        """Its exit status, after these keys."""
        os.write(self.screen, keys.encode())
        self.process.process.join(GUARD)
        assert self.process.returncode is not None, f"{keys!r} did not end it"
        os.close(self.screen)
        return self.process.returncode


def command_line(terminal, folder, words):
    """The life of a process: what opens a terminal first, without having one, is who Ctrl-C there is for."""
    for stream in range(3):
        os.dup2(os.open(terminal, os.O_RDWR), stream)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    os.chdir(folder)
    multiprocessing.set_start_method("fork", force=True)  # its own children are its own
    from tinydist.__main__ import main

    print(".", end="", flush=True)
    sys.exit(main(list(words)))
