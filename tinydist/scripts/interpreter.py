"""What a rank of a script has of its own in the interpreter, as it would in a process. It changes hands with the run
lock.

    a rank's own                                                       shared by all ranks
    modules of the script, and so their global variables               modules of installed libraries, loaded once
    sys.argv, sys.path, the working directory, atexit                  all else that the interpreter has
    loggers of the script, and what it sets on the root logger         loggers of libraries

A module is the script's if it is a Python file outside of the installed libraries that was not loaded before. A rank
that stops in the middle of an import holds the lock of that module's name. The lock is its own, too: another rank would
wait for it for ever when it imports its own module of that name.
"""

import _frozen_importlib as importing
import logging
import os
import sys
import threading
from contextlib import contextmanager

from ..simulator.call_sites import is_library
from ..simulator.rank_state import ProcessState

MAIN = ("__main__", "__mp_main__")
here = threading.local()  # .interpreter: of the rank whose thread it is


class Common:
    """What the ranks of one launch share: the names of modules and loggers that belong to no rank."""

    def __init__(self):
        self.modules, self.loggers = set(sys.modules) - {*MAIN}, set(logging.Logger.manager.loggerDict)


class Interpreter:
    """What one rank has of its own, or the process that launches the ranks."""

    def __init__(self, common, argv, path, folder):
        self.common, self.argv, self.path, self.folder = common, argv, path, folder
        self.modules, self.locks, self.loggers, self.seen = {}, {}, {}, None
        self.root = {"handlers": [], "filters": [], "disabled": False}
        self.level = logging.WARNING
        self.at_exit = []

    def begin(self):
        """From now on the rank of this thread has it."""
        here.interpreter = ProcessState.running.also = self
        self.enter()

    def enter(self):
        sys.argv, sys.path = self.argv, self.path
        if os.getcwd() != self.folder:
            os.chdir(self.folder)
        sys.modules.update(self.modules)
        importing._module_locks.update(self.locks)
        logging.Logger.manager.loggerDict.update(self.loggers)
        vars(logging.root).update(self.root)
        if logging.root.level != self.level:
            logging.root.setLevel(self.level)  # which forgets what loggers have derived from the last one

    def leave(self):
        self.argv, self.path, self.folder = sys.argv, sys.path, os.getcwd()
        self.root, self.level = {name: vars(logging.root)[name] for name in self.root}, logging.root.level
        sizes = len(sys.modules), len(logging.Logger.manager.loggerDict)
        if sizes != self.seen:
            self.seen = sizes
            self._look()
        self.locks = taken(importing._module_locks, self.modules)
        self.modules = taken(sys.modules, self.modules)
        self.loggers = taken(logging.Logger.manager.loggerDict, self.loggers)

    def _look(self):
        """Find what is the rank's own of all that has been loaded since."""
        new = sys.modules.keys() - self.common.modules
        self.modules = {name for name in new if is_own(name, sys.modules[name])}
        self.common.modules |= new - self.modules
        new = logging.Logger.manager.loggerDict.keys() - self.common.loggers
        self.loggers = {name for name in new if name.partition(".")[0] not in self.common.modules}
        self.common.loggers |= new - self.loggers

    def end(self):
        """Call what the rank has registered with atexit, the last one first."""
        while self.at_exit:
            self.at_exit.pop()()


def taken(all, names):
    """{name: what there was} of those names that are there; they no longer are."""
    return {name: all.pop(name) for name in names if name in all}


def is_own(name, module):
    """Is it a module of the script?"""
    known = getattr(module, "__dict__", {})
    places = [known.get("__file__") or "", *known.get("__path__", ())]
    file = places[0] or (places[1] + os.sep if len(places) > 1 else "")
    is_python = file.endswith((".py", ".pyc", os.sep))
    return name in MAIN or (is_python and os.path.isabs(file) and not is_library[file])


class Interpreters:
    """Those of the ranks that run."""

    common = None

    @contextmanager
    def of_ranks(self):
        """Meanwhile the interpreter belongs to the ranks; afterwards to the one that launched them, as it was."""
        outer = getattr(here, "interpreter", None) or of_this_process()
        outer.leave()
        before, self.common = self.common, Common()
        try:
            yield
        finally:
            Interpreter(self.common, [], [], "").leave()  # takes what a rank that failed has left there
            self.common = before
            outer.enter()


def of_this_process():
    return Interpreter(Common(), sys.argv, sys.path, os.getcwd())


interpreters = Interpreters()
