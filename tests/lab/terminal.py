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
        os.read(self.screen, 1)  # it is in its terminal
        os.close(inner)

    def until(self, text):
        """What is shown, up to that text."""
        shown = ""
        while text not in shown:
            assert select.select([self.screen], [], [], GUARD)[0], f"{text!r} did not come, but {shown!r}"
            shown += os.read(self.screen, 4096).decode().replace("\r\n", "\n")
        return shown

    def type(self, keys, until):
        os.write(self.screen, keys.encode())
        return self.until(until)

    def end(self, keys):
        """Its exit status, after these keys."""
        os.write(self.screen, keys.encode())
        status = self.process.wait()
        os.close(self.screen)
        return status


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
