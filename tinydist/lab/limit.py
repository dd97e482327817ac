"""No answer runs for ever: a rank that has run too many lines of the learner's code gets ``TooLong``, there.

A loop without end is no deadlock, and a clock cannot tell it from hard work on a busy machine; a count can, and it is
the same everywhere. What libraries run does not count: a loop of the learner's runs something of that in each round.
"""

import dis
import sys
from functools import cache

from ..simulator.call_sites import is_library

LINES = 200_000  # ten times what a solution takes that searches
LAST = 10  # lines more, in which it may tidy up


class TooLong(BaseException):
    """Not an Exception: a learner's ``except Exception`` must not stop it."""


class Limit:
    """For one rank, in one run: ``with limit:``. Whoever swallows ``TooLong`` gets it again at the next line;
    ``passed`` remembers."""

    def __init__(self):
        self.left, self.passed = LINES, False

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.function_begins)

    def __exit__(self, *_):
        sys.settrace(self.before)

    def function_begins(self, frame, event, argument):
        if is_library[frame.f_code.co_filename]:
            return None
        frame.f_trace_opcodes = of_one_instruction(frame.f_code) or switches_off(frame.f_code)
        return self.goes_on

    def goes_on(self, frame, event, argument):
        if event in ("line", "opcode"):
            self.left -= 1
            if self.left < 0:
                if not self.passed:
                    self.left, self.passed = LAST, True
                frame.f_trace = TracedAgain(self, frame)
                raise TooLong
        return self.goes_on


@cache
def of_one_instruction(code):
    """Is there a loop that comes to no new line, as ``while True: pass``?"""
    return any(each.opname.startswith("JUMP") and each.argval == each.offset for each in dis.get_instructions(code))


def switches_off(code):
    """Torch's dispatch, perhaps for a part of a line."""
    return any("Disable" in name or "_disable" in name for name in code.co_names)


class TracedAgain:
    """Once a trace function raises, Python traces the thread no more, and drops this: then it is traced again."""

    def __init__(self, limit, frame):
        self.limit, self.frame = limit, frame

    def __del__(self):
        sys.settrace(self.limit.function_begins)
        self.frame.f_trace = self.limit.goes_on
