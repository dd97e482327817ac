"""What starts the ranks of tests: torch.multiprocessing's spawn, and the base classes of torch's own tests."""

import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest import SkipTest
from unittest.mock import patch

import torch.distributed as dist
import torch.multiprocessing as mp

BASES = "torch.testing._internal.common_distributed"


@contextmanager
def ranks_of_tests_by(launch):
    """Context: they run their ranks with ``launch(program, ranks)``, which calls ``program(rank)`` on each."""
    with ExitStack() as replaced:
        for module in (mp, sys.modules["torch.multiprocessing.spawn"]):  # mp.spawn calls that of its own module
            replaced.enter_context(patch.object(module, "start_processes", partial(start_processes, launch)))
        replaced.enter_context(patch.object(dist, "FileStore", LastingFileStore))
        if bases := sys.modules.get(BASES):
            for owner, changes in methods(bases, launch).items():
                replaced.enter_context(patch.multiple(owner, **changes))
        yield


def start_processes(launch, fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    __tracebackhide__ = True
    launch(fn, nprocs, *args)
    return None if join else Ended()


class LastingFileStore(dist.FileStore):
    """The last one to go would delete its file, which processes that spawned ones never do: they end before."""

    made = ()

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        LastingFileStore.made += (self,)


class Ended:
    """A ProcessContext: its processes have ended before it is there."""

    processes, sentinels = (), ()

    def join(self, timeout=None, grace_period=None):
        return True


def methods(bases, launch):
    """Replacements of the methods that start and join processes, or threads, and those in which these begin."""
    skips = {skip.exit_code: skip.message for skip in bases.TEST_SKIPS.values()}

    def join_processes(case, fn):
        __tracebackhide__ = True
        launch(lambda rank: type(case)._run(rank, case._current_test_name(), case.file_name, None), case.world_size)

    def run_test(case, name, pipe):
        bases.common_utils.set_rng_seed()
        try:
            getattr(case, name)()
        except SystemExit as end:
            if end.code not in skips:
                raise
            raise SkipTest(skips[end.code]) from None
        if case.destroy_pg_upon_exit and dist.is_initialized():
            dist.destroy_process_group()

    def spawn_threads(case):
        case.threads = [case]
        type(case).global_store = dist.HashStore()

    def join_threads(threads, fn):
        __tracebackhide__ = True
        case = threads[0]
        launch(lambda rank: type(case)._run(case._current_test_name, rank, case.world_size), case.world_size)

    def run_test_with_threaded_pg(case, name, rank, ranks):
        dist.init_process_group("gloo", rank=rank, world_size=ranks, store=case.global_store)
        case.perThreadSetUp()
        getattr(case, name)()
        dist.destroy_process_group()
        case.perThreadTearDown()

    processes = dict(_start_processes=lambda case, proc: None, _join_processes=join_processes, run_test=run_test)
    threads = dict(_spawn_threads=spawn_threads, _join_threads=staticmethod(join_threads))
    threads |= dict(run_test_with_threaded_pg=run_test_with_threaded_pg)
    return {bases.MultiProcessTestCase: processes, bases.MultiThreadedTestCase: threads}
