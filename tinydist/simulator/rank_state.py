"""Per-process state that threads share (random numbers, environment, streams), swapped with the run lock.

Grad mode, autocast and the default device are not here: torch keeps them for each thread.
"""

import io
import os
import random
import sys
from functools import lru_cache

import numpy
import torch

from ..torch_internals import RankWorld, get_world, set_world


def functions_of(generator):
    """Those of the module ``random``, drawing from ``generator``."""
    return {name: getattr(generator, name) for name in random.__all__ if hasattr(generator, name)}


@lru_cache(maxsize=4)
def words_of(entropy, key, *how):
    return numpy.random.SeedSequence(entropy, spawn_key=key).generate_state(*how)


class Seeds(numpy.random.SeedSequence):
    """All ranks begin with the same ones, which take longer to work out than all else that a rank is given."""

    def generate_state(self, *how):
        return words_of(self.entropy, self.spawn_key, *how)


class ProcessState:
    """Saved process state of a rank that is not running. The constructor saves the current state."""

    running = None  # that of the rank which has the run lock
    also = None  # what else changes hands with it: its ``leave()`` and ``enter()`` are called

    def __init__(self, places):
        self.places = places
        self.python_random, self.functions = random._inst, functions_of(random._inst)
        self.leave()

    def leave(self):
        self.torch_random = torch.default_generator.get_state()
        self.numpy_random = numpy.random.get_bit_generator()
        self.dtype = torch.get_default_dtype()
        self.world = get_world()
        self.environment = os.environ._data
        self.in_places = self.places.values()
        self.stdout, self.stderr = sys.stdout, sys.stderr
        if self.also:
            self.also.leave()

    def enter(self):
        ProcessState.running = self
        torch.default_generator.set_state(self.torch_random)
        random._inst = self.python_random
        random.__dict__.update(self.functions)
        numpy.random.set_bit_generator(self.numpy_random)
        if torch.get_default_dtype() is not self.dtype:
            torch.set_default_dtype(self.dtype)
        set_world(self.world)
        os.environ._data = self.environment
        self.places.put(self.in_places)
        sys.stdout, sys.stderr = self.stdout, self.stderr
        if self.also:
            self.also.enter()


class KernelState(ProcessState):
    """The kernel's, and what else a program can change for the process: all ranks share it, as long as they run."""

    def __init__(self, places):
        super().__init__(places)
        self.threads, self.drawn = torch.get_num_threads(), random.getstate()
        self.folder, self.path = os.getcwd(), list(sys.path)
        self.determinism = torch.get_deterministic_debug_mode()
        self.products = precision_of_products()

    def restore(self, ranks):
        """``ranks``: the states of those that ran."""
        self.places.values()  # a rank that failed has left without a look at what is there
        self.enter()
        self._restore_native_environment(ranks)
        random.setstate(self.drawn)
        torch.set_num_threads(self.threads)
        os.chdir(self.folder)
        sys.path[:] = self.path
        if torch.get_deterministic_debug_mode() != self.determinism:
            torch.set_deterministic_debug_mode(self.determinism)
        if precision_of_products() != self.products:
            torch.set_float32_matmul_precision(self.products[0] or "highest")
            torch.backends.cuda.matmul.fp32_precision = self.products[1]

    def _restore_native_environment(self, ranks):
        """What a program sets or deletes in os.environ goes to the process's own environment, too. Native code and new
        processes look there: with RANK left in it they would take part in a job that there is not."""
        for name in {name for state in ranks for name in state.environment} - self.environment.keys():
            os.unsetenv(name)
        for name, value in self.environment.items():
            os.putenv(name, value)


def precision_of_products():
    """What ``set_float32_matmul_precision`` sets, by its older name and by its newer one."""
    newer = torch.backends.cuda.matmul.fp32_precision
    try:
        return torch.get_float32_matmul_precision(), newer
    except RuntimeError:  # the newer one has been set, and torch does not want both to be used
        return None, newer


class RankState(ProcessState):
    """The initial state of a rank's process. ``show(rank, stream, line)`` is called for each printed line."""

    def __init__(self, places, rank, size, per_node, seed, show):
        self.places, self.in_places = places, places.fresh()
        self.torch_random = torch.Generator().manual_seed(seed).get_state()
        self.python_random = random.Random(seed)
        self.functions = functions_of(self.python_random)
        self.numpy_random = numpy.random.MT19937(Seeds(seed))
        self.dtype = torch.float32
        self.world = RankWorld()
        self.environment = encoded(ALONE) | os.environ._data | encoded(environment(rank, size, per_node))
        self.streams = [RankStream(rank, name, show) for name in ("stdout", "stderr")]
        self.stdout, self.stderr = self.streams

    def flush(self):
        for stream in self.streams:
            stream.close_line()


ALONE = {"OMP_NUM_THREADS": 1}  # torchrun's default if unset; libraries read it


def environment(rank, size, per_node):
    """What torchrun sets for ``rank`` of ``size``, with ``per_node`` ranks on each machine."""
    node, local_rank = divmod(rank, per_node)
    return {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": min(per_node, size - node * per_node),
        "GROUP_RANK": node,
        "MASTER_ADDR": "simulated",
        "MASTER_PORT": 0,
    }


def encoded(variables):
    return {os.environ.encodekey(name): os.environ.encodevalue(str(value)) for name, value in variables.items()}


class RankStream(io.TextIOBase):
    """A rank's stdout or stderr: passes on whole lines."""

    encoding = "utf-8"

    def __init__(self, rank, name, show):
        self.rank, self.name, self.show = rank, name, show
        self.line = []  # what it says, in pieces
        self.returned = False  # what comes next overwrites it

    def reconfigure(self, **_):
        """Of a file, which a program may want to be buffered by lines: this is."""

    def fileno(self):
        """The process's, for what writes there without Python: faulthandler, a child process."""
        stream = getattr(sys, f"__{self.name}__")
        return super().fileno() if stream is None else stream.fileno()

    def writable(self):
        return True

    def write(self, text):
        line, *others = text.split("\n")
        self._continue(line)
        for line in others:
            self._end_line()
            self._continue(line)
        return len(text)

    def _continue(self, text):
        """A progress bar writes one line over and over: its last state counts."""
        for number, state in enumerate(text.split("\r")):
            self.returned |= number > 0
            if state:
                if self.returned:
                    self.line, self.returned = [], False
                self.line.append(state)

    def _end_line(self):
        self.show(self.rank, self.name, "".join(self.line))
        self.line, self.returned = [], False

    def close_line(self):
        if self.line:
            self._end_line()
