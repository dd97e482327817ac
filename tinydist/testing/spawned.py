"""``pytest --simulate-spawn``: tests that spawn their own processes run on simulated ranks, unchanged.

    torch.multiprocessing.spawn(fn, args, nprocs=4)       launch: fn(rank, *args) on each of four ranks
    MultiProcessTestCase, MultiThreadedTestCase           torch's own tests: the method, on each rank

The program initializes its process group itself, as it does on processes. As there, each rank has a copy of its
arguments, but tensors among them are moved to shared memory, which is the same for all.
"""

from torch import Tensor

from ..torch_internals.test_cases import ranks_of_tests_by
from .fixtures import rank_here
from .on_ranks import simulate
from .own_copies import leaves


def launched(program, ranks, *args):
    __tracebackhide__ = True
    for tensor in leaves(args):
        if isinstance(tensor, Tensor):
            tensor.share_memory_()
    simulate(lambda *args: program(rank_here(), *args), (args, {}), ranks, {"init": False, "observe": False})


def spawns_launch():
    return ranks_of_tests_by(launched)
