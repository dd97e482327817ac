"""Traces an answer while it runs: the functions that it calls, whether all its work is observed, and a limit of steps.

A module can be imported by a text or be found in ``sys.modules``, so names in the code would not tell: Python itself
tells of each function that begins. Torch's own are not Python's: it tells of them itself.

A rank that executes too many lines of the learner's code gets ``TooLong`` at that line. An infinite loop is no
deadlock, and a timeout cannot distinguish it from slow work on a busy machine; a line count can, and is deterministic.
Lines of libraries do not count.
"""

import dis
import sys
from contextlib import nullcontext
from functools import cache
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR

from torch.overrides import TorchFunctionMode

from ..simulator.call_sites import is_library
from ..torch_internals import dispatch_is_seen

LINES = 200_000  # ten times what a solution takes that searches
LAST = 10  # lines more, in which it may tidy up
SUSPENDED = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
UNSEEN = {
    "threading.Thread.start": "a thread of its own, whose work is not seen",
    "multiprocessing.process.BaseProcess.start": "another process, whose work is not seen",
    "subprocess.Popen.__init__": "another process, whose work is not seen",
}


class TooLong(BaseException):
    """Not an Exception: a learner's ``except Exception`` must not stop it."""

    def __str__(self):
        return f"it runs more than {LINES:,} lines"


class Tracer:
    """For one rank, in one run: ``with tracer:``. ``called``: names of functions, from their modules on; ``torchs``: of
    torch's, those with the word ``listen`` in them; ``unseen``: torch's dispatch was switched off where operators are
    ``counted``. An answer that swallows ``TooLong`` gets it again at the next line; ``passed`` records that the limit
    was exceeded."""

    def __init__(self, listen="", counted=True):
        self.left, self.passed = LINES, False
        self.codes, self.torchs, self.counted, self.unseen = {}, set(), counted, False
        self.libraries = set()  # ids of codes that are noted, and whose lines do not count
        self.listener = TorchFunctions(listen, self.torchs) if listen else nullcontext()

    @property
    def called(self):
        return {name for _, name in self.codes.values()}

    def __enter__(self):
        self.listener.__enter__()
        self.before = sys.gettrace()
        sys.settrace(self.trace_call)

    def __exit__(self, *error):
        sys.settrace(self.before)
        self.listener.__exit__(*error)

    def trace_call(self, frame, event, argument):
        code = frame.f_code
        if id(code) in self.libraries:  # most are
            return None
        if id(code) not in self.codes and begins(frame):  # a code takes long to hash
            self.codes[id(code)] = code, f"{frame.f_globals.get('__name__')}.{code.co_qualname}"
            if is_library[code.co_filename] or of_a_named_tuple(frame):
                self.libraries.add(id(code))
        if id(code) in self.libraries or is_library[code.co_filename]:
            return None
        frame.f_trace_opcodes = of_one_instruction(code) or switches_off(code)
        return self.trace_line

    def trace_line(self, frame, event, argument):
        if self.counted and not dispatch_is_seen():
            self.unseen = True
        if event in ("line", "opcode"):
            self.left -= 1
            if self.left < 0:
                if not self.passed:
                    self.left, self.passed = LAST, True
                frame.f_trace = TracedAgain(self, frame)
                raise TooLong
        return self.trace_line


@cache
def of_one_instruction(code):
    """Is there a loop that reaches no new line, as ``while True: pass``?"""
    return any(each.opname.startswith("JUMP") and each.argval == each.offset for each in dis.get_instructions(code))


def switches_off(code):
    """Torch's dispatch, perhaps for a part of a line."""
    return any("Disable" in name or "_disable" in name for name in code.co_names)


class TracedAgain:
    """Once a trace function raises, Python traces the thread no more, and drops this: then it is traced again."""

    def __init__(self, tracer, frame):
        self.tracer, self.frame = tracer, frame

    def __del__(self):
        sys.settrace(self.tracer.trace_call)
        self.frame.f_trace = self.tracer.trace_line


def of_a_named_tuple(frame):
    """Python's own, of no file: tinydist makes some while it counts."""
    return frame.f_code.co_filename == "<string>" and frame.f_globals.get("__name__", "").startswith("namedtuple_")


def begins(frame):
    """Of a generator Python tells each time it goes on, even to be ended by garbage collection."""
    return not frame.f_code.co_flags & SUSPENDED or frame.f_lasti <= start_of(frame.f_code)


@cache
def start_of(code):
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")


class TorchFunctions(TorchFunctionMode):
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
