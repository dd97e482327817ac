"""What an answer does, seen while it runs: the functions that are called, and whether all of it can be seen.

A module can be imported by a text or be found in ``sys.modules``, so names in the code would not tell: Python itself
tells of each function that begins. Torch's own are not Python's: it tells of them itself.
"""

import dis
from functools import cache
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR

from torch.overrides import TorchFunctionMode

from ..simulator.call_sites import is_library
from ..simulator.torch_internals import dispatch_is_seen
from .limit import Limit

SUSPENDED = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
UNSEEN = {
    "threading.Thread.start": "a thread of its own, whose work is not seen",
    "multiprocessing.process.BaseProcess.start": "another process, whose work is not seen",
    "subprocess.Popen.__init__": "another process, whose work is not seen",
}


class Watch(Limit):
    """For one rank, in one run. ``called``: names of functions, from their modules on; ``torchs``: of torch's, those
    with the word ``listen`` in them; ``unseen``: torch's dispatch was switched off where operators are ``counted``."""

    def __init__(self, listen="", counted=True):
        super().__init__()
        self.codes, self.torchs, self.counted, self.unseen = {}, set(), counted, False
        self.libraries = set()  # ids of codes that are noted, and whose lines do not count
        self.listener = listen and Listener(listen, self.torchs)

    @property
    def called(self):
        return {name for _, name in self.codes.values()}

    def __enter__(self):
        if self.listener:
            self.listener.__enter__()
        super().__enter__()

    def __exit__(self, *error):
        super().__exit__()
        if self.listener:
            self.listener.__exit__(*error)

    def function_begins(self, frame, event, argument):
        code = frame.f_code
        if id(code) in self.libraries:  # most are
            return None
        if id(code) not in self.codes and begins(frame):  # a code takes long to hash
            self.codes[id(code)] = code, f"{frame.f_globals.get('__name__')}.{code.co_qualname}"
            if is_library[code.co_filename] or of_a_named_tuple(frame):
                self.libraries.add(id(code))
                return None
        return super().function_begins(frame, event, argument)

    def goes_on(self, frame, event, argument):
        if self.counted and not dispatch_is_seen():
            self.unseen = True
        return super().goes_on(frame, event, argument)


def of_a_named_tuple(frame):
    """Python's own, of no file: tinydist makes some while it counts."""
    return frame.f_code.co_filename == "<string>" and frame.f_globals.get("__name__", "").startswith("namedtuple_")


def begins(frame):
    """Of a generator Python tells each time it goes on, even to be ended by garbage collection."""
    return not frame.f_code.co_flags & SUSPENDED or frame.f_lasti <= start_of(frame.f_code)


@cache
def start_of(code):
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")


class Listener(TorchFunctionMode):
    def __init__(self, word, names):
        super().__init__()
        self.word, self.names = word, names

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if self.word in name:
            self.names.add(name)
        return function(*args, **(kwargs or {}))


def within(whole, name):
    """Is it a module or function of that name, or one in it?"""
    return name.startswith(whole) and name[len(whole) :][:1] in ("", ".")
