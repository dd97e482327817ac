"""Whose work an answer is: the modules whose functions it calls, however it came by them.

Names in its code would not tell: a module can be imported by a text, or be found in ``sys.modules``. So Python itself
tells of every call while the answer runs, of Python's own functions as of the learner's.
"""

import dis
import sys
from collections import defaultdict
from contextlib import contextmanager
from functools import cache

import torch.distributed as dist


class Watched:
    """An answer that notes what it calls. It is called as the answer is."""

    def __init__(self, answer):
        self.answer = answer
        self.modules = defaultdict(set)  # number of ranks -> names

    def __call__(self, *arguments):
        with calls_noted(self.modules[dist.get_world_size()]):
            return self.answer(*arguments)

    def calls(self, solved, ranks):
        """Has it called, in a world of so many ranks, a function of the module ``solved`` or of one in it?"""
        return any(f"{name}.".startswith(f"{solved}.") for name in self.modules[ranks])


@contextmanager
def calls_noted(modules):
    """In this thread."""

    def note(frame, event, argument):
        if event == "call" and frame.f_lasti <= beginning(frame.f_code):
            modules.add(frame.f_globals.get("__name__"))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


@cache
def beginning(code):
    """Where a call begins. Of a generator Python tells each time it goes on, even to be ended by garbage collection."""
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")
