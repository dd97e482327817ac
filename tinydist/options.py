"""What ``launch`` takes: one rule for each option, and what must hold between them."""

import difflib
import inspect
import math
import numbers
import operator
import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from reprlib import repr as shortly
from types import SimpleNamespace
from typing import NamedTuple

import psutil

from .hardware import CLUSTERS, Cluster, find_cluster

BACKENDS = ("simulated", "gloo", "nccl")
OF_SIMULATED_RANKS = {
    "cluster": None,
    "schedule": "fifo",
    "compute": "modeled",
    "fake": False,
    "only": None,
    "per_rank": (),
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


class Rule(NamedTuple):
    words: str
    read: Callable  # the value as launch uses it; TypeError or ValueError for what breaks the rule


def whole(value, least=0, most=math.inf):
    number = operator.index(value)
    if isinstance(value, bool) or not least <= number <= most:
        raise ValueError
    return number


def duration(value):
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < value < math.inf:
        raise ValueError
    return value


def of_kind(kind, value):
    if not isinstance(value, kind):
        raise TypeError
    return value


def optional(read):
    return lambda value: None if value is None else read(value)


def one_of(*values):
    return Rule(" or ".join(map(repr, values)), lambda value: values[values.index(value)])


SWITCH = Rule("True or False", partial(of_kind, bool))
RULES = {
    "ranks": Rule("a whole number from 1", partial(whole, least=1)),
    "backend": Rule(f"one of {', '.join(BACKENDS)}", one_of(*BACKENDS).read),
    "cluster": Rule(
        f"a hardware.Cluster or one of {', '.join(map(repr, CLUSTERS))}",
        optional(lambda value: of_kind(Cluster, find_cluster(value))),
    ),
    "seed": Rule("a whole number from 0 to 2**64 - 1", partial(whole, most=2**64 - 1)),
    "schedule": one_of("fifo", "shuffle"),
    "timeout": Rule("a number of seconds above 0, or None", optional(duration)),
    "init": SWITCH,
    "observe": SWITCH,
    "compute": one_of("modeled", "measured"),
    "fake": SWITCH,
    "only": Rule("a list of ranks, or None", optional(lambda ranks: sorted({whole(rank) for rank in ranks}))),
    "per_rank": Rule("a list of places", lambda places: tuple(of_kind(list | tuple | set, places))),
}


def checked(**options):
    """The options as launch uses them. A backend that is not named is TINYDIST_BACKEND, or else "simulated"."""
    named = options["backend"]
    if named is None:
        options["backend"] = os.environ.get("TINYDIST_BACKEND", "simulated")
    asked = SimpleNamespace(**{name: read(name, value) for name, value in options.items()})
    if asked.only is not None and not (asked.fake and asked.only and asked.only[-1] < asked.ranks):
        raise ValueError(
            f"launch: only names some of the ranks 0 to {asked.ranks - 1}, with fake=True, got {options['only']!r}"
        )
    idle = [name for name, default in OF_SIMULATED_RANKS.items() if getattr(asked, name) != default]
    if named in ("gloo", "nccl") and idle:
        raise ValueError(f"launch: {', '.join(idle)}: for simulated ranks alone, but backend is {named!r}")
    return asked


def read(name, value):
    rule = RULES[name]
    try:
        return rule.read(value)
    except (TypeError, ValueError):
        raise ValueError(f"launch: {name} must be {rule.words}, got {value!r}") from None


def check_program(fn, arguments, unknown):
    """``unknown``: keywords that are no options of launch."""
    if not callable(fn):
        raise TypeError(f"launch: the program must be a function, got {shortly(fn)}")
    name = getattr(fn, "__name__", type(fn).__name__)
    if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(
            f"launch: {name} is a coroutine or a generator: a call of it runs none of its lines. Launch a function "
            "without async and yield"
        )
    if unknown:
        first = next(iter(unknown))
        close = difflib.get_close_matches(first, RULES, n=1)
        meant = f" Did you mean {close[0]}?" if close else ""
        bound = ", ".join([name, *(f"{word}={shortly(value)}" for word, value in unknown.items())])
        line = ", ".join([f"functools.partial({bound})", *map(shortly, arguments)])
        raise TypeError(f"launch has no option {first!r}.{meant} An argument of {name} goes like this: launch({line})")


def check_room(asked):
    """More ranks than there are threads and memory for are refused, before the machine comes to a halt."""
    ranks, of_processes = asked.ranks, asked.backend != "simulated"
    running = len(asked.only) if asked.only else ranks
    needed = running * (A_PROCESS if of_processes else A_THREAD) + (ranks - running) * ABSENT
    allowed = threads_allowed()
    if running > allowed or (needed > LITTLE and needed > memory_free()):
        kind = "processes" if of_processes else "threads"
        most = f"{allowed:,} {kind} at most, and " if allowed < math.inf else ""
        raise ValueError(
            f"launch: {ranks:,} {asked.backend} ranks need {running:,} {kind} and {gigabytes(needed)} of memory "
            f"before they do anything; here are {most}{gigabytes(memory_free())}"
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
