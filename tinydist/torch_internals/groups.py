"""Per-rank state of torch.distributed: process groups and the default group."""

import sys
from contextlib import contextmanager

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch._C import _distributed_c10d as native
from torch.distributed import c10d_logger

if not hasattr(dist, "all_gather_single"):  # torch 2.12 has them under the names that 2.13 deprecates
    dist.all_gather_single, dist.reduce_scatter_single = dist.all_gather_into_tensor, dist.reduce_scatter_tensor

device_of_group = c10d._get_object_coll_device  # where a group takes tensors that belong to no model


class RankWorld(c10d._World):
    """One rank's process-group state of torch.distributed: attributes in place of torch's global variables."""

    pg_map = pg_names = pg_group_ranks = pg_backend_config = group_count = tags_to_pg = pg_to_tag = None

    def __init__(self):
        super().__init__()
        self.pg_map, self.pg_names, self.pg_group_ranks, self.pg_backend_config = {}, {}, {}, {}
        self.group_count, self.tags_to_pg, self.pg_to_tag = 0, {}, {}


def get_world():
    return c10d._world


def set_world(world):
    c10d._world = world


@contextmanager
def excepthook_unchanged():
    """``init_process_group`` wraps it, once more each time."""
    excepthook = sys.excepthook
    try:
        yield
    finally:
        sys.excepthook = excepthook


lasting = []  # a rank without others may launch


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
    lasting.append(None)
    try:
        with excepthook_unchanged():
            yield
    finally:
        lasting.pop()
        native._set_thread_isolation_mode(bool(lasting))
        for name, value in before.items():
            setattr(c10d, name, value)
        c10d_logger._get_msg_dict = describe


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
    tags = "", f"user:{tag}" if tag else f"ptd:{name}"  # any group can be searched for without a tag, too
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


def flight_record():
    """What PyTorch's Flight Recorder has kept of this process's calls on groups of gloo and nccl: the pickle that
    ``torchfrtrace`` reads, whose "entries" are a dict for each call, the oldest first."""
    from torch._C._distributed_c10d import _dump_fr_trace  # the way that torch's own tutorial goes

    return _dump_fr_trace()
