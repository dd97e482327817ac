"""Hooks into torch.profiler: which threads are recorded, and how a profile starts and stops."""

import threading
from contextlib import contextmanager

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.autograd import profiler

REGION_BEGINS = torch.ops.profiler._record_function_enter_new.default  # what torch.profiler.record_function calls
REGION_ENDS = torch.ops.profiler._record_function_exit._RecordFunction

profiled = set()  # threads


@contextmanager
def profiled_by(profilers):
    """``torch.profiler`` starts and stops ``profilers``, where the functions below would be called."""
    replaced = {
        "_prepare_profiler": profilers.prepare,
        "_enable_profiler": profilers.enable,
        "_disable_profiler": profilers.disable,
        "ProfilerConfig": config_for_all_threads,
    }
    before = {name: getattr(profiler, name) for name in replaced}
    vars(profiler).update(replaced)
    try:
        yield
    finally:
        vars(profiler).update(before)
        profilers.end()


def config_for_all_threads(*settings):
    *settings, _, trace_id = settings  # not what is experimental in other ways
    return torch._C._profiler.ProfilerConfig(*settings, _ExperimentalConfig(profile_all_threads=True), trace_id)


def begin_profiling(config, activities):
    torch._C._autograd._prepare_profiler(config, activities)
    torch._C._autograd._enable_profiler(config, activities)


def end_profiling():
    return torch._C._autograd._disable_profiler()


def be_profiled(wanted):
    """The thread that calls it is, or is not, recorded while a session is on."""
    (profiled.add if wanted else profiled.discard)(threading.get_ident())
    torch._C._autograd._enable_record_function(wanted)


def profiler_is_on():
    return profiler._is_profiler_enabled
