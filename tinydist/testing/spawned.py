"""``pytest --simulate-spawn``: tests that spawn their own processes run on simulated ranks, unchanged.

    torch.multiprocessing.spawn(fn, args, nprocs=4)       launch: fn(rank, *args) on each of four ranks
    MultiProcessTestCase, MultiThreadedTestCase           torch's own tests: the method, on each rank

The program initializes its process group itself, as it does on processes. As there, each rank has a copy of its
arguments, but tensors among them are moved to shared memory, which is the same for all.
"""

import os

from torch import Tensor

from ..simulator.rank_exit import run_to_exit
from ..simulator.rank_state import environment
from ..torch_internals.test_cases import ranks_of_tests_by
from .fixtures import rank_here
from .on_ranks import simulate
from .own_copies import leaves


def launched(program, ranks, *args):
    __tracebackhide__ = True
    for tensor in leaves(args):
        if isinstance(tensor, Tensor):
            tensor.share_memory_()
    outside = dict(os.environ)

    def spawned(*args):
        rank = rank_here()
        as_spawned(outside)
        run_to_exit(rank, program, (rank, *args))

    simulate(spawned, (args, {}), ranks, {"init": False, "observe": False})


def as_spawned(outside):
    """The environment of a spawned process: what torchrun sets is not there, unless it was there before."""
    for name in environment(0, 1, 1):
        del os.environ[name]
        if name in outside:
            os.environ[name] = outside[name]


def spawns_launch():
    return ranks_of_tests_by(launched)
