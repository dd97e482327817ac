"""A job: a program on its ranks, each with what a process of torchrun has, and the runs that came of it."""

import io
import os
import sys
from contextlib import contextmanager
from functools import partial

from ..launching import launch
from ..simulator.scheduler import Abort
from .interpreter import Common, Interpreter, here
from .process_calls import process_calls_are_the_ranks


class Job:
    """``environment``: what torchrun sets, besides what ``launch`` does. ``options``: of ``launch``. ``shown``: the
    local ranks that print; None: all."""

    def __init__(self, program, placement, environment, options, shown=None):
        self.program, self.placement, self.options = program, placement, options
        self.environment, self.shown = environment, shown
        self.runs, self.common = [], None
        self.failed = None  # (rank, what it raised) of the first that failed

    def run(self):
        """Start the program on each rank. If that is one alone, the processes that it starts are ranks, too."""
        if self.placement.ranks > 1:
            return self.launch(self.begin, self.placement.ranks)
        return self.launch(partial(self.begin_as_parent, (sys.stdout, sys.stderr)), 1)

    def launch(self, fn, ranks, *args):
        """As ``tinydist.launch``, for a program that makes its own default group."""
        where = self.placement.options(ranks)
        self.ranks, self.per_node = ranks, where["cluster"].devices_per_node
        with self.interpreters(), process_calls_are_the_ranks():
            run = launch(fn, ranks, *args, init=False, **where, **self.options)
        self.runs.append(run)
        return run

    @contextmanager
    def interpreters(self):
        """Meanwhile the interpreter belongs to the ranks; afterwards to the one that launched them, as it was."""
        outer = getattr(here, "interpreter", None) or Interpreter(Common(), sys.argv, sys.path, os.getcwd())
        outer.leave()
        before, self.common = self.common, Common()
        try:
            yield
        finally:
            Interpreter(self.common, [], [], "").leave()  # takes what a rank that failed has left there
            self.common = before
            outer.enter()

    # On a rank.

    def begin(self):
        rank, variables = int(os.environ["RANK"]), self.environment
        os.environ.update({name: value.format(rank=rank) for name, value in variables.items()})
        if self.shown is not None and int(os.environ["LOCAL_RANK"]) not in self.shown:
            sys.stdout = sys.stderr = Nowhere()
        self.in_own_interpreter(self.program.run)

    def begin_as_parent(self, streams):
        from .spawning import spawn_launches

        sys.stdout, sys.stderr = streams  # a single process needs no prefix
        with spawn_launches(self):
            self.begin()

    def in_own_interpreter(self, run):
        """Call ``run()`` on this thread's rank as in a process that has just begun."""
        rank = int(os.environ["RANK"])
        interpreter = Interpreter(self.common, list(self.program.argv), list(self.program.path), os.getcwd())
        interpreter.begin()
        try:
            run()
        except BaseException as error:
            if self.failed is None and not isinstance(error, Abort) and not well(error):
                self.failed = rank, error
            elif well(error):
                interpreter.end()
            raise
        else:
            interpreter.end()


def well(error):
    """Is it a sys.exit without an error?"""
    return isinstance(error, SystemExit) and error.code in (None, 0)


class Nowhere(io.TextIOBase):
    """Output of a rank that is not shown."""

    encoding = "utf-8"

    def writable(self):
        return True

    def write(self, text):
        return len(text)

    def reconfigure(self, **_):
        pass
