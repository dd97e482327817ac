"""``spawn_launches``: processes that a program starts with ``multiprocessing`` are the ranks of a launch.

    torch.multiprocessing.spawn, start_processes         a launch of nprocs ranks
    Process (of both modules, and of a context)          those started until one is joined are a launch
    Queue, SimpleQueue, Event, Barrier, Lock, Semaphore  shared_objects.py's
    torchrun, called as torch.distributed.run.main, and  a launch
    elastic_launch

A library's own processes, such as the workers of a DataLoader, stay processes.
"""

import multiprocessing
import sys
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import context
from unittest.mock import patch

import torch.multiprocessing as torch_multiprocessing
from torch.distributed.launcher import api

from ..launching import launch
from . import child
from .child import CONTEXTS, Children, RankProcess, check_guard
from .shared_objects import KINDS, REFUSED

torch_spawn = sys.modules["torch.multiprocessing.spawn"]


def launch_alone(fn, ranks):
    return launch(fn, ranks, init=False)


def begin_here(start, run):
    run()


@contextmanager
def spawn_launches(launch=launch_alone, begin=begin_here, elastic=None):
    """``launch(fn, ranks)`` runs ``fn`` on the ranks; there, ``begin(start, run)`` calls ``run()`` in what the process
    begins with, a child.Start. ``elastic(config, entrypoint, args)`` in the place of ``launch_agent``."""
    children = Children(launch, begin)
    method = multiprocessing.get_start_method(allow_none=True)
    with ExitStack() as stack:
        for where, name, value in replacements(children, elastic):
            stack.enter_context(patch.object(where, name, value))
        try:
            yield
        except SystemExit:
            children.run()
            raise
        else:
            children.run()  # which the program has not awaited
        finally:
            multiprocessing.set_start_method(method, force=True)


def replacements(children, elastic):
    """(Where, name, what is there instead)"""
    yield RankProcess, "children", children
    for where in (multiprocessing, torch_multiprocessing, context.DefaultContext):
        yield where, "Process", RankProcess
    for method, kind in CONTEXTS.items():
        yield kind, "Process", child.KINDS[method]
    for where in (torch_multiprocessing, torch_spawn):
        for name, function in (("spawn", spawn), ("start_processes", start_processes)):
            yield where, name, partial(of_owner, children.owner, function, getattr(where, name))
    for name in (*KINDS, *REFUSED):
        for where in (multiprocessing, torch_multiprocessing):
            yield where, name, maker(name, children, getattr(where, name))
        yield context.BaseContext, name, maker(name, children, getattr(context.BaseContext, name), in_context=1)
    if elastic:
        yield api, "launch_agent", partial(of_owner, children.owner, elastic, api.launch_agent)


def of_owner(owner, function, real, *args, **kwargs):
    """Call ``function`` for the script itself, and the ``real`` one for its ranks."""
    check_guard()
    return (function if threading.get_ident() == owner else real)(*args, **kwargs)


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn", **_):
    processes = [Started(target=fn, args=(number, *args)) for number in range(nprocs)]
    for process in processes:
        process.start_method = start_method
        process.start()
    started = StartedProcesses(processes)
    return None if join and started.join() else started


class Started(RankProcess):
    """Its target may be a library's: Accelerate and Lightning call a program's function."""


class StartedProcesses:
    """What ``spawn(join=False)`` returns."""

    def __init__(self, processes):
        self.processes = processes

    def join(self, timeout=None, grace_period=None):
        for process in self.processes:
            process.join()
        return True

    def pids(self):
        return [process.pid for process in self.processes]


def maker(name, children, real, in_context=0):
    """Makes an object of that name: for the script ours; for libraries, and on ranks, the ``real`` one."""

    def make(*args, **kwargs):
        if not children.asked():
            return real(*args, **kwargs)
        if name in REFUSED:
            raise NotImplementedError(f"multiprocessing.{name} is not available where processes are simulated ranks")
        return KINDS[name](children.run, *args[in_context:], **{key: kwargs[key] for key in kwargs if key != "ctx"})

    return make
