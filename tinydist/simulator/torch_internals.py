"""Every private name of torch that tinydist touches, and why. Written for torch 2.13."""

import sys
import threading
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import torch.distributed.nn.functional  # here, since it binds the default group of the moment when it is imported
from torch._C import _distributed_c10d as native
from torch._C._profiler import _ExperimentalConfig
from torch.autograd import profiler
from torch.distributed import c10d_logger

NEEDED = (
    (c10d, ("_World", "_world", "_backend", "_default_pg_init_method", "rendezvous", "_new_process_group_helper")),
    (c10d, ("_register_process_group", "_unregister_all_process_groups")),
    (c10d, ("_find_pg_by_ranks_and_tag", "_get_default_timeout")),
    (c10d_logger, ("_get_msg_dict",)),
    (native, ("_set_thread_isolation_mode",)),
    (torch._C, ("_DisableTorchDispatch", "_current_autograd_node")),
    (torch, ("_foreach_copy_",)),
    (profiler, ("_prepare_profiler", "_enable_profiler", "_disable_profiler", "ProfilerConfig")),
    (profiler, ("_is_profiler_enabled",)),
    (torch._C._autograd, ("_enable_record_function",)),
    (torch.autograd.Variable._execution_engine, ("queue_callback",)),
)
missing = [name for home, names in NEEDED for name in names if not hasattr(home, name)]
if missing:
    raise ImportError(
        f"simulated ranks need names of torch that torch {torch.__version__} does not have: {', '.join(missing)}. "
        "tinydist is tested with torch 2.13: install that version (pip install torch==2.13.0)."
    )

copy_all = torch._foreach_copy_  # (destinations, sources)
NATIVE_WAITERS = {torch.autograd.graph.__file__, torch.nn.parallel.distributed.__file__}


class RankWorld(c10d._World):
    """What torch.distributed knows of groups on one rank: plain attributes where torch's own has global ones."""

    default_pg = pg_map = pg_names = pg_group_ranks = pg_backend_config = None
    group_count = tags_to_pg = pg_to_tag = pg_coalesce_state = comms = None

    def __init__(self):
        self.group_count = 0
        self.pg_map, self.pg_names, self.pg_group_ranks, self.pg_backend_config = {}, {}, {}, {}
        self.tags_to_pg, self.pg_to_tag, self.pg_coalesce_state, self.comms = {}, {}, {}, []


def get_world():
    return c10d._world


def set_world(world):
    c10d._world = world


@contextmanager
def replaced(new_process_group, rendezvous):
    """``init_process_group`` makes its group with ``new_process_group`` and finds its peers with ``rendezvous``.

    On leaving, torch.distributed is as it was: the kernel's own groups are untouched.
    """
    names = ("_world", "_backend", "_default_pg_init_method", "_new_process_group_helper", "rendezvous")
    before = {name: getattr(c10d, name) for name in names}
    excepthook = sys.excepthook  # init_process_group wraps it
    describe = c10d_logger._get_msg_dict
    c10d_logger._get_msg_dict = lambda *_, **__: {}  # would hide an error by its own where there is no nccl
    c10d._new_process_group_helper, c10d.rendezvous = new_process_group, rendezvous
    native._set_thread_isolation_mode(True)  # a registry of group names for each thread, and so for each rank
    try:
        yield
    finally:
        native._set_thread_isolation_mode(False)
        for name, value in before.items():
            setattr(c10d, name, value)
        sys.excepthook = excepthook
        c10d_logger._get_msg_dict = describe


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


profiled = set()  # threads


def be_profiled(wanted):
    """The thread that calls it is, or is not, recorded while a session is on."""
    (profiled.add if wanted else profiled.discard)(threading.get_ident())
    torch._C._autograd._enable_record_function(wanted)


def profiler_is_on():
    return profiler._is_profiler_enabled


def install_world_group(group, name, backend, store, identity):
    """What ``init_process_group`` records, without its dictionary of all ranks on every rank."""
    world = c10d._world
    world.default_pg, world.group_count = group, 1
    world.pg_group_ranks[group] = identity
    install_group(group, name, backend, store)


def install_group(group, name, backend, store, tag=None):
    world = c10d._world
    world.pg_map[group] = (dist.Backend(backend), store)
    world.pg_names[group] = name
    world.pg_backend_config[group] = backend
    # A tag of the program's own can be searched for without it, too.
    tags = ["", f"user:{tag}"] if tag else [f"ptd:{name}"]
    world.pg_to_tag[group] = tags[-1]
    for each in tags:
        world.tags_to_pg.setdefault(each, []).append(group)
    c10d._register_process_group(name, group)


def group_of_tag(tag, ranks):
    """The running rank's group of that tag and these ranks; None where there is none, or no tag."""
    return c10d._find_pg_by_ranks_and_tag(tag, ranks) if tag else None


def chosen_timeout(timeout, backend):
    """In seconds; None where it is torch's default."""
    default = timeout is None or timeout == c10d._get_default_timeout(dist.Backend(backend))
    return None if default else timeout.total_seconds()


def forget_groups():
    """The groups of the running rank are gone, however it ended."""
    c10d._unregister_all_process_groups()


class unobserved(torch.inference_mode):
    """Moving data between ranks is no operator of any rank: no autograd, no dispatch modes, no subclasses."""

    def __enter__(self):
        super().__enter__()
        self.guard = torch._C._DisableTorchDispatch()
        self.profiled = threading.get_ident() in profiled
        if self.profiled:
            torch._C._autograd._enable_record_function(False)

    def __exit__(self, *error):
        if self.profiled:
            torch._C._autograd._enable_record_function(True)
        del self.guard
        super().__exit__(*error)


def in_backward():
    """Is a node of the autograd graph being run in this thread?"""
    return torch._C._current_autograd_node() is not None


def before_backward_ends(callback):
    """Call ``callback`` when all nodes have run, before the callbacks that are queued after it."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def native_code_will_wait():
    """Does the call come from inside DDP or the autograd engine, which wait for futures in C++?"""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename not in NATIVE_WAITERS:
        frame = frame.f_back
    return frame is not None
