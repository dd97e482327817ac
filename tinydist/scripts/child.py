"""A process that a script starts: it becomes a rank, together with the others that are started until one is awaited."""

import multiprocessing
import os
import sys
import threading
from functools import partial
from itertools import count
from multiprocessing import context
from types import BuiltinFunctionType, FunctionType, ModuleType

from ..simulator.call_sites import is_library
from .handover import Handover
from .interpreter import here

CONTEXTS = {"spawn": context.SpawnContext, "fork": context.ForkContext, "forkserver": context.ForkServerContext}
REAL = {None: context.Process} | {method: kind.Process for method, kind in CONTEXTS.items()}
numbers = count(1)
TERMINATED = -15  # the exit code of a process that SIGTERM ended


class Children:
    """Those of one script. ``launch(fn, ranks)`` runs them; there, ``begin(start, run)`` calls ``run()`` with what the
    process begins with, a Start."""

    def __init__(self, launch, begin):
        self.launch, self.begin, self.waiting, self.owner = launch, begin, [], threading.get_ident()

    def run(self):
        """Run those that have been started; were there any?"""
        processes, self.waiting = self.waiting, []
        if processes:
            try:
                self.launch(lambda: processes[int(os.environ["RANK"])].live(), len(processes))
            finally:
                for process in processes:
                    process.exitcode = TERMINATED if process.exitcode is None else process.exitcode
        return bool(processes)

    def asked(self, depth=1):
        """Does the script itself ask, not a library that it uses, nor one of its ranks?"""
        file = sys._getframe(depth + 1).f_code.co_filename
        return threading.get_ident() == self.owner and not is_library[file]


class Start:
    """The state of the parent when it starts a process: what the process begins with."""

    def __init__(self, process, forked):
        self.environment, self.argv, self.path = dict(os.environ), list(sys.argv), list(sys.path)
        self.process = Handover(process, forked)
        self.variables = Handover(variables_of(sys.modules["__main__"]), forked=True) if forked else None


def variables_of(module):
    """Its data: what a forked process would have, beside what it gets by running the module's lines."""
    code = (type, FunctionType, BuiltinFunctionType, ModuleType)
    data = {name: value for name, value in vars(module).items() if not isinstance(value, code)}
    return {name: data[name] for name in data if (name == "__name__" or name[:2] != "__") and has_pickle(data[name])}


def has_pickle(value):
    try:
        Handover(value)
    except Exception:
        return False
    return True


class RankProcess:
    """In the place of ``multiprocessing.Process``, for a script."""

    children = None  # of the script that runs
    start_method = None  # None: the one that is set
    exitcode = pid = name = daemon = None

    def __new__(cls, group=None, target=None, *args, **kwargs):
        ours = cls.__module__ != __name__ or (RankProcess.children.asked() and not of_a_library(target))
        check_guard()
        return object.__new__(cls) if ours else REAL[cls.start_method](group, target, *args, **kwargs)

    def __init__(self, group=None, target=None, name=None, args=(), kwargs=None, *, daemon=None):
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self.name, self.daemon = name or f"Process-{next(numbers)}", bool(daemon)

    def __reduce__(self):
        kind = type(self) if type(self).__module__ != __name__ else RankProcess  # where it runs they are all the same
        return copied, (kind, {name: value for name, value in vars(self).items() if name not in PARENTS})

    def __repr__(self):
        return f"<{type(self).__name__} {self.name}, exitcode={self.exitcode}>"

    def run(self):
        if self._target:
            self._target(*self._args, **self._kwargs)

    def start(self):
        if self.pid is not None:
            raise AssertionError("cannot start a process twice")
        forked = (self.start_method or multiprocessing.get_start_method()) == "fork"
        self._start, self._children = Start(self, forked), RankProcess.children
        self.pid = os.getpid()
        self._children.waiting.append(self)

    def live(self):
        """On its rank."""
        try:
            self._children.begin(self._start, lambda: self._start.process.unpack().run())
        except SystemExit as end:
            self.exitcode = end.code if isinstance(end.code, int) else int(end.code is not None)
            raise
        except Exception:
            self.exitcode = 1
            raise
        self.exitcode = 0

    def join(self, timeout=None):
        if self.is_alive():
            self._children.run()

    def is_alive(self):
        return self.pid is not None and self.exitcode is None

    def terminate(self):
        if self.is_alive():
            self._children.waiting.remove(self)
            self.exitcode = TERMINATED

    kill = terminate

    def close(self):
        pass


KINDS = {  # where a library's process looks for how it is started, in the class of the context
    method: type(f"{method.capitalize()}Process", (RankProcess, real), {"start_method": method})
    for method, real in REAL.items()
    if method
}


def check_guard():
    if getattr(here, "imports_main", False):
        raise RuntimeError(
            "a process starts processes while it imports the script, as each of these would: "
            'begin the part that only the script itself runs with if __name__ == "__main__":'
        )


PARENTS = ("_start", "_children")


def copied(kind, state):
    process = object.__new__(kind)
    vars(process).update(state)
    return process


def of_a_library(target):
    while isinstance(target, partial):
        target = target.func
    code = getattr(target, "__code__", None)
    return code is not None and is_library[code.co_filename]
