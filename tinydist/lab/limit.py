"""No answer runs for ever: a rank that has run too many instructions of the learner's code gets ``TooLong``, there.

A loop without end is no deadlock, and a clock cannot tell it from hard work on a busy machine; a count can, and it is
the same everywhere. What libraries run does not count: a loop of the learner's runs something of that in each round.
"""

import sys

from ..simulator.call_sites import of_library

INSTRUCTIONS = 2_000_000  # Python's own, some 200,000 lines: ten times what a solution takes that searches


class TooLong(BaseException):
    """Not an Exception: a learner's ``except Exception`` must not stop it."""


class Limit:
    """For one rank, in one run: ``with limit:``. Whoever swallows ``TooLong`` gets it again at the next instruction;
    ``passed`` remembers."""

    def __init__(self):
        self.left = INSTRUCTIONS

    @property
    def passed(self):
        return self.left < 0

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.function_begins)

    def __exit__(self, *_):
        sys.settrace(self.before)

    def function_begins(self, frame, event, argument):
        if of_library(frame.f_code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False  # `while True: pass` is one instruction of one line
        return self.instruction

    def instruction(self, frame, event, argument):
        if event == "opcode":
            self.left -= 1
            if self.left < 0:
                frame.f_trace = TracedAgain(self, frame)
                raise TooLong
        return self.instruction


class TracedAgain:
    """Once a trace function raises, Python traces the thread no more, and drops this: then it is traced again."""

    def __init__(self, limit, frame):
        self.limit, self.frame = limit, frame

    def __del__(self):
        sys.settrace(self.limit.function_begins)
        self.frame.f_trace = self.limit.instruction
