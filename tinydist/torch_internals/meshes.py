"""DTensor's propagation of shardings."""

import sys
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch.distributed.device_mesh import DeviceMesh

FIND = "propagate_op_sharding_non_cached"
LOADED = "torch.distributed.tensor._sharding_prop"


def operand_on_host(spec):
    """What DTensor tries an operator on: it asks for shapes only, and C++ may have no GPU."""
    like = spec.tensor_meta
    return torch.empty_strided(like.shape, like.stride, dtype=like.dtype, device="cpu")


@contextmanager
def shapes_found(within):
    """While this lasts, DTensor finds out the shapes and shardings of results, on fake tensors, inside ``within()``: it
    does so for the first operator of its kind, and others are like it. DTensor takes half a second to load, so it is
    loaded with the first mesh, which each DTensor has."""
    with ExitStack() as patches:
        if LOADED in sys.modules:
            find_shapes(within, patches)
        else:
            load_with_a_mesh(within, patches)
        yield


def load_with_a_mesh(within, patches):
    make = DeviceMesh.__init__

    def make_and_load(mesh, *args, **kwargs):
        if DeviceMesh.__init__ is make_and_load:
            DeviceMesh.__init__ = make
            find_shapes(within, patches)
        make(mesh, *args, **kwargs)

    patches.enter_context(patch.object(DeviceMesh, "__init__", make_and_load))


def find_shapes(within, patches):
    from torch.distributed.tensor import _op_schema as operators
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    find = getattr(ShardingPropagator, FIND)

    def find_within(propagator, *args, **kwargs):
        with within():
            return find(propagator, *args, **kwargs)

    patches.enter_context(patch.object(ShardingPropagator, FIND, find_within))
    patches.enter_context(patch.object(operators, "_rebuild_tensor_from_dtensor_meta", operand_on_host))
