"""A job: a program on its ranks, each with what torchrun gives a process; or a script whose processes are the ranks."""

import os
import sys
from functools import partial

from ..launching import launch
from ..simulator.rank_state import environment
from ..simulator.scheduler import Abort
from .elastic import elastic
from .interpreter import Interpreter, here, interpreters
from .process_calls import process_calls_are_the_ranks
from .silence import Silence


class Outcome:
    """Of a job, and of the jobs that its script has started."""

    def __init__(self):
        self.runs = []  # as each ended
        self.ranks = self.per_node = 1  # of the launch that goes on
        self.failed = None  # (rank, what it raised) of the first that failed

    def note(self, rank, error):
        if self.failed is None and not isinstance(error, Abort) and not ended_well(error):
            self.failed = rank, error


class Job:
    """``variables``: of the environment, as torchrun sets them besides those of ``launch``; {rank} is the rank.
    ``options``: of ``launch``. ``shown``: the local ranks that print; None: all."""

    def __init__(self, program, placement, variables, options, shown=None, outcome=None):
        self.program, self.placement, self.variables = program, placement, variables
        self.options, self.shown, self.outcome = options, shown, outcome or Outcome()

    def run(self):
        """Start the program on each rank. If that is one alone, the processes that it starts are ranks, too."""
        if self.placement.ranks > 1:
            return self.launch(self.begin, self.placement)
        return self.launch(partial(self.begin_as_parent, (sys.stdout, sys.stderr)), self.placement)

    def launch(self, fn, placement):
        """As ``tinydist.launch``, for a program that makes its own default group."""
        cluster, outcome = placement.on(), self.outcome
        before = outcome.ranks, outcome.per_node
        outcome.ranks, outcome.per_node = placement.ranks, cluster.devices_per_node
        with interpreters.of_ranks(), process_calls_are_the_ranks():
            run = launch(fn, placement.ranks, backend="simulated", init=False, cluster=cluster, **self.options)
        outcome.runs.append(run)
        outcome.ranks, outcome.per_node = before
        return run

    # On a rank.

    def begin(self):
        return self.begin_function(self.program.run, self.program.argv, self.program.path)

    def begin_function(self, function, argv=None, path=None):
        places = {"rank": os.environ["RANK"], "local_rank": os.environ["LOCAL_RANK"]}
        os.environ.update({name: value.format(**places) for name, value in self.variables.items()})
        if self.shown is not None and int(places["local_rank"]) not in self.shown:
            sys.stdout = sys.stderr = Silence()
        return self.in_own_interpreter(function, argv or self.program.argv, path or self.program.path)

    def begin_as_parent(self, streams):
        from .spawning import spawn_launches  # multiprocessing and the like, which few scripts need

        sys.stdout, sys.stderr = streams  # a single process needs no prefix
        with spawn_launches(self.launch_children, self.begin_child, partial(elastic, self)):
            self.begin()

    def launch_children(self, fn, ranks):
        return self.launch(fn, self.placement.with_processes(ranks))

    def begin_child(self, start, run):
        """A process that the script has started imports the script, and then calls ``run()``."""
        rank, torchruns = os.environ["RANK"], {*environment(0, 1, 1), *self.variables} - {"MASTER_ADDR", "MASTER_PORT"}
        for name in torchruns & os.environ.keys():
            del os.environ[name]  # those of its parent
        os.environ.update({name: value for name, value in start.environment.items() if name not in torchruns})

        def import_and_run():
            here.imports_main = True
            main = self.program.run("__mp_main__")
            here.imports_main = False
            vars(main).update(start.variables.unpack() if start.variables else {})
            run()

        self.in_own_interpreter(import_and_run, start.argv, start.path, rank)

    def in_own_interpreter(self, run, argv, path, rank=None):
        """Call ``run()`` on this thread's rank as in a process that has just begun."""
        rank = int(rank or os.environ["RANK"])
        interpreter = Interpreter(interpreters.common, list(argv), list(path), os.getcwd())
        interpreter.begin()
        try:
            result = run()
        except BaseException as error:
            self.outcome.note(rank, error)
            if ended_well(error):
                interpreter.end()
            raise
        interpreter.end()
        return result


def ended_well(error):
    """Is it a sys.exit without an error?"""
    return isinstance(error, SystemExit) and error.code in (None, 0)
