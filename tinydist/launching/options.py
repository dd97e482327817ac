"""Validation of ``launch``'s options: one rule per option, and constraints between them."""

import difflib
import inspect
import math
import os
from functools import cache
from pathlib import Path
from reprlib import repr as shortly
from types import SimpleNamespace

import psutil

from ..hardware import CLUSTERS, Cluster, find_cluster
from ..rules import count, each_of, flag, holds, many, must, one_of, positive, stated, whole, words_of
from ..simulator.scheduler import rank_alone

BACKENDS = ("simulated", "gloo", "nccl")
OF_SIMULATED_RANKS = {
    "cluster": None,
    "schedule": "fifo",
    "compute": "modeled",
    "fake": False,
    "only": None,
    "per_rank": (),
    "gpus": False,
    "values": None,
}

# Bytes of a rank that does nothing (benchmarks/simulator.py), and of one that does not run, as with ``only``.
A_THREAD, A_PROCESS, ABSENT = 140e3, 240e6, 1e3
LITTLE = 500e6  # bytes: for less the system is not asked, which takes as long as starting some ranks
# What Linux allows, and how much of it a thread takes: its stack and the guard below it are two mappings.
LIMITS = {
    "/proc/sys/kernel/threads-max": 1,
    "/proc/sys/kernel/pid_max": 1,
    "/sys/fs/cgroup/pids.max": 1,
    "/proc/sys/vm/max_map_count": 2,
}


def optional(rule):
    return stated(f"{words_of(rule)}, or None", lambda value: value is None or holds(rule, value))


RULES = {
    "ranks": count,
    "backend": one_of(BACKENDS),
    "cluster": optional(
        stated(
            f"a hardware.Cluster or one of {', '.join(map(repr, CLUSTERS))}",
            lambda value: isinstance(value, Cluster) or (isinstance(value, str) and value in CLUSTERS),
        )
    ),
    "seed": stated("an integer from 0 to 2**64 - 1", lambda value: whole(value) and value < 2**64),
    "schedule": one_of(("fifo", "shuffle")),
    "timeout": optional(stated("a number of seconds > 0", lambda value: positive(value))),
    "init": flag,
    "observe": stated('True, False or "communication"', lambda value: flag(value) or value == "communication"),
    "compute": one_of(("modeled", "measured")),
    "fake": flag,
    "only": optional(stated("a list of ranks", each_of(whole, least=0))),
    "per_rank": stated('a list of "module:attribute" strings', lambda value: many(value)),
    "gpus": flag,
    "values": optional(stated("a dictionary of names and numbers", lambda value: isinstance(value, dict))),
}


def checked(**options):
    """The options as launch uses them. A backend that is not named is TINYDIST_BACKEND, or else "simulated"."""
    named = options["backend"]
    if named is None:
        options["backend"] = os.environ.get("TINYDIST_BACKEND", "simulated")
    for name, value in options.items():
        must("launch", name, RULES[name], value)
    asked = SimpleNamespace(**options)
    asked.ranks, asked.seed = int(asked.ranks), int(asked.seed)  # not NumPy's
    asked.cluster = asked.cluster and find_cluster(asked.cluster)
    asked.only = None if asked.only is None else sorted(set(map(int, asked.only)))
    if asked.only is not None and not (asked.fake and asked.only and asked.only[-1] < asked.ranks):
        raise ValueError(
            f"launch: only must be a subset of ranks 0 to {asked.ranks - 1}, with fake=True, got {options['only']!r}"
        )
    if asked.gpus and asked.observe is not True:
        raise ValueError(f"launch: gpus=True requires observe=True, which counts their memory, got {asked.observe!r}")
    if asked.values and not (asked.gpus and asked.fake):
        raise ValueError(
            f"launch: values are what is read of fake GPUs, with gpus=True, fake=True, got {asked.values!r}"
        )
    idle = [name for name, default in OF_SIMULATED_RANKS.items() if getattr(asked, name) != default]
    if named in ("gloo", "nccl") and idle:
        raise ValueError(f"launch: {', '.join(idle)}: supported on simulated ranks only, got backend={named!r}")
    return asked


def under_torchrun():
    """Is this process a rank of a job already?"""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ and not rank_alone()


def check_program(fn, arguments, unknown):
    """``unknown``: keywords that are no options of launch."""
    if not callable(fn):
        raise TypeError(f"launch: the program must be a function, got {shortly(fn)}")
    name = getattr(fn, "__name__", type(fn).__name__)
    if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(
            f"launch: {name} is a coroutine function or generator function, and calling it runs none of its lines; "
            "pass a regular function"
        )
    if unknown:
        first = next(iter(unknown))
        close = difflib.get_close_matches(first, RULES, n=1)
        meant = f" Did you mean {close[0]}?" if close else ""
        bound = ", ".join([name, *(f"{word}={shortly(value)}" for word, value in unknown.items())])
        line = ", ".join([f"functools.partial({bound})", *map(shortly, arguments)])
        raise TypeError(f"launch has no option {first!r}.{meant} To pass arguments to {name}, write: launch({line})")


def check_room(asked):
    """Reject more ranks than the available threads and memory allow."""
    ranks, of_processes = asked.ranks, asked.backend != "simulated"
    running = len(asked.only) if asked.only else ranks
    needed = running * (A_PROCESS if of_processes else A_THREAD) + (ranks - running) * ABSENT
    allowed = threads_allowed()
    if running > allowed or (needed > LITTLE and needed > memory_free()):
        kind = "processes" if of_processes else "threads"
        most = f"{allowed:,} {kind} and " if allowed < math.inf else ""
        raise ValueError(
            f"launch: {ranks:,} {asked.backend} ranks require at least {running:,} {kind} and {gigabytes(needed)} "
            f"of memory; available: {most}{gigabytes(memory_free())}"
        )


@cache
def threads_allowed():
    stated = {Path(path): share for path, share in LIMITS.items() if os.path.exists(path)}
    limits = [int(path.read_text()) // share for path, share in stated.items() if path.read_text().strip() != "max"]
    return min(limits, default=math.inf)


def memory_free():
    return psutil.virtual_memory().available


def gigabytes(nbytes):
    return f"{nbytes / 1e9:,.3g} GB"
