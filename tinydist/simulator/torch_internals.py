"""Every private name of torch that tinydist touches, and why.

Written for torch 2.13. What differs in the others of torch_versions.py, and how one program suits them all:

- 2.12 has ``all_gather_single`` and ``reduce_scatter_single`` under older names: they get the new ones here.
- 2.12 has no ``new_group`` of a group's own to call, and what the later ones pass to it differs. A simulated group
  has none: then all of them make groups with ``_new_process_group_helper``, which is replaced.
- 2.14 on asks a group for the backend of a device before a batch of messages: a simulated group is its own.
- 2.15 runs a schedule of a pipeline only if there is a wait for each send: pipeline_parallel/torch_csv.py writes it.
- 2.15 has ``_pg_flight_recorder_hooks`` in its world: a rank's world lets torch's own make what is not global.
"""

import sys
import threading
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import torch.distributed.nn.functional  # here, since it binds the default group of the moment when it is imported
from torch import nn
from torch._C import _distributed_c10d as native
from torch._C._profiler import _ExperimentalConfig
from torch._subclasses import DynamicOutputShapeException, FakeTensor, FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.autograd import profiler
from torch.distributed import _functional_collectives as functional
from torch.distributed import _mesh_layout, c10d_logger, device_mesh

from .torch_versions import INSTALL

NEEDED = (
    (c10d, ("_World", "_world", "_backend", "_default_pg_init_method", "rendezvous", "_new_process_group_helper")),
    (c10d, ("_register_process_group", "_unregister_all_process_groups", "_get_object_coll_device")),
    (c10d, ("_find_pg_by_ranks_and_tag", "_get_default_timeout")),
    (c10d_logger, ("_get_msg_dict",)),
    (native, ("_set_thread_isolation_mode",)),
    (torch._C, ("_DisableTorchDispatch", "_current_autograd_node")),
    (torch, ("_foreach_copy_",)),
    (nn.Module, ("_apply",)),
    (FakeTensorMode, ("_cached_dispatch_impl", "_dispatch_impl")),
    (torch.ops._c10d_functional.all_reduce.default, ("_op_dk",)),
    (functional, ("_are_we_tracing",)),
    (profiler, ("_prepare_profiler", "_enable_profiler", "_disable_profiler", "ProfilerConfig")),
    (profiler, ("_is_profiler_enabled",)),
    (torch._C._autograd, ("_enable_record_function",)),
    (torch.autograd.Variable._execution_engine, ("queue_callback",)),
)
missing = [name for home, names in NEEDED for name in names if not hasattr(home, name)]
if missing:
    raise ImportError(
        f"simulated ranks need names of torch that torch {torch.__version__} does not have: {', '.join(missing)}. "
        + INSTALL
    )

if not hasattr(dist, "all_gather_single"):  # torch 2.12 has them under the names that 2.13 deprecates
    dist.all_gather_single, dist.reduce_scatter_single = dist.all_gather_into_tensor, dist.reduce_scatter_tensor

copy_all = torch._foreach_copy_  # (destinations, sources)
device_of_group = c10d._get_object_coll_device  # where a group takes tensors that belong to no model
MESHES = {device_mesh.__file__, _mesh_layout.__file__}
COLLECTIVES = {"_c10d_functional", "_dtensor"}  # operators that call a process group
NATIVE_WAITERS = {torch.autograd.graph.__file__, torch.nn.parallel.distributed.__file__}


class RankWorld(c10d._World):
    """What torch.distributed knows of groups on one rank: plain attributes where torch's own are global variables."""

    pg_map = pg_names = pg_group_ranks = pg_backend_config = group_count = tags_to_pg = pg_to_tag = None

    def __init__(self):
        super().__init__()
        self.pg_map, self.pg_names, self.pg_group_ranks, self.pg_backend_config = {}, {}, {}, {}
        self.group_count, self.tags_to_pg, self.pg_to_tag = 0, {}, {}


def get_world():
    return c10d._world


def set_world(world):
    c10d._world = world


def load_for_modes():
    """What the first operator under a dispatch mode would load, on a rank: it takes a second or two."""
    import torch._dynamo  # noqa: F401


@contextmanager
def excepthook_unchanged():
    """``init_process_group`` wraps it, once more each time."""
    excepthook = sys.excepthook
    try:
        yield
    finally:
        sys.excepthook = excepthook


def pipelines_wait_for_sends():
    from torch.distributed.pipelining import schedules  # takes its time

    return hasattr(schedules, "WAIT_SEND_F")


@contextmanager
def replaced(new_process_group, rendezvous):
    """``init_process_group`` makes its group with ``new_process_group`` and finds its peers with ``rendezvous``.

    On leaving, torch.distributed is as it was: the kernel's own groups are untouched.
    """
    names = ("_world", "_backend", "_default_pg_init_method", "_new_process_group_helper", "rendezvous")
    before = {name: getattr(c10d, name) for name in names}
    describe = c10d_logger._get_msg_dict
    c10d_logger._get_msg_dict = lambda *_, **__: {}  # would hide an error by its own where there is no nccl
    c10d._new_process_group_helper, c10d.rendezvous = new_process_group, rendezvous
    native._set_thread_isolation_mode(True)  # a registry of group names for each thread, and so for each rank
    try:
        with excepthook_unchanged():
            yield
    finally:
        native._set_thread_isolation_mode(False)
        for name, value in before.items():
            setattr(c10d, name, value)
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
    c10d._world = RankWorld()


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
    return called_from(NATIVE_WAITERS)


def called_from(files):
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename not in files:
        frame = frame.f_back
    return frame is not None


class FakeTensors(FakeTensorMode):
    """Tensors that have no data, for programs that run: torch's own mode is made to trace programs."""

    def __init__(self):
        super().__init__(allow_non_fake_inputs=True)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if FakeTensor not in types and called_from(MESHES):
            return func(*args, **kwargs)  # which ranks make up a mesh is read from tensors: these have data
        if func.namespace in COLLECTIVES:
            with self:  # what it does on a device, in the place of its shapes alone
                return func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            reads = "needs the numbers in a tensor, but tensors have none with fake=True"
            raise RuntimeError(f"{func.name()} {reads}") from None

    def forget(self, tensors):
        """The number in a tensor that was made from it is known: no longer, where other ranks have written to it."""
        for tensor in tensors:
            if isinstance(tensor, FakeTensor) and tensor.constant is not None:
                self.fake_tensor_converter.invalidate_constant_aliases(tensor.constant)

    def _cached_dispatch_impl(self, func, types, args, kwargs):
        """The cache makes a view by ``set_``, which lets storage grow that was freed: such views are made anew."""
        freed = func.is_view and args[0].nbytes > args[0].untyped_storage().nbytes()
        return (self._dispatch_impl if freed else super()._cached_dispatch_impl)(func, types, args, kwargs)


@contextmanager
def fake_as_real():
    """torch does with fake tensors what it does with others."""
    tracing, swap = functional._are_we_tracing.__code__, torch.utils.swap_tensors
    functional._are_we_tracing.__code__ = (lambda: False).__code__  # many modules have it under a name of their own
    torch.utils.swap_tensors = lambda old, new: (take if isinstance(old, FakeTensor) else swap)(old, new)
    try:
        yield
    finally:
        functional._are_we_tracing.__code__, torch.utils.swap_tensors = tracing, swap


def take(tensor, other):
    """``tensor`` becomes ``other``. A swap fails where anything watches one of the two, and loses the hooks."""
    tensor.data, tensor.fake_device = other, other.fake_device


@contextmanager
def conversions_told(tell):
    """``tell(module)`` when ``module.to(...)`` or its like has given its tensors other memory."""
    convert = nn.Module._apply

    def convert_and_tell(module, *args, **kwargs):
        convert(module, *args, **kwargs)
        tell(module)
        return module

    nn.Module._apply = convert_and_tell
    try:
        yield
    finally:
        nn.Module._apply = convert
