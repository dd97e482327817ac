"""Whose work an answer is: the functions that it calls, however it came by them.

Names in its code would not tell: a module can be imported by a text, or be found in ``sys.modules``. So Python itself
tells of every call while the answer runs, of Python's own functions as of the learner's. Torch's are not Python's: it
tells of them itself.
"""

import dis
import sys
from collections import defaultdict
from contextlib import contextmanager, nullcontext
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR

import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from .errors import Wrong


class Watched:
    """An answer that notes what it calls. It is called as the answer is.

    ``torchs``: of torch's functions, those with this word in their names. What they do inside is not seen.
    """

    def __init__(self, answer, torchs=None):
        self.answer, self.torchs = answer, torchs
        self.called = defaultdict(set)  # number of ranks -> names of functions, from their modules on
        self.of_torch = defaultdict(set)  # the same, of torch's alone
        self.seen = defaultdict(dict)  # the codes of those called, by id: a code takes long to hash

    def __call__(self, *arguments):
        ranks = dist.get_world_size()
        with TorchsNoted(self.torchs, self.of_torch[ranks]) if self.torchs else nullcontext():
            with calls_noted(self.called[ranks], self.seen[ranks]):
                return self.answer(*arguments)

    def calls(self, solved, ranks, lent=()):
        """Has it called, in a world of so many ranks, what is in the module ``solved``? ``lent``: what it may call."""
        called = {name for name in self.called[ranks] if not any(within(each, name) for each in lent)}
        return any(within(solved, name) for name in called)


def within(whole, name):
    """Is it a module or function of that name, or one in it?"""
    return f"{name}.".startswith(f"{whole}.")


def calls_none_of(watched, solved, instead, lent=()):
    """A judge: the answer calls nothing in the modules ``solved`` (module -> its name for a learner), and no function
    of torch that ``watched`` notes. ``instead``: what to do. ``lent``: modules, classes, functions in ``solved`` that
    it may call."""

    def judge(trial):
        ranks = trial.case.ranks
        names = [name for home, name in solved.items() if watched.calls(home, ranks, lent)]
        names += [f"torch's {name}" for name in sorted(watched.of_torch[ranks])]
        if names:
            raise Wrong(f"you call {names[0]}, where this is solved; {instead}")

    return judge


class TorchsNoted(TorchFunctionMode):
    def __init__(self, word, names):
        super().__init__()
        self.word, self.names = word, names

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if self.word in name:
            self.names.add(name)
        return function(*args, **(kwargs or {}))


@contextmanager
def calls_noted(names, seen):
    """In this thread. Who is told of calls already (limit.py) is told of them still."""
    before = sys.gettrace()

    def note(frame, event, argument):
        if id(frame.f_code) not in seen and begins(frame):
            seen[id(frame.f_code)] = frame.f_code
            names.add(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}")
        return before and before(frame, event, argument)

    sys.settrace(note)
    try:
        yield
    finally:
        sys.settrace(before)


def begins(frame):
    """Of a generator Python tells each time it goes on, even to be ended by garbage collection."""
    code = frame.f_code
    if not code.co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR):
        return True
    return frame.f_lasti <= next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")
