"""DTensor's propagation of shardings."""

from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch.distributed.tensor import _op_schema as operators
from torch.distributed.tensor._sharding_prop import ShardingPropagator

FIND = "propagate_op_sharding_non_cached"


def operand_on_host(spec):
    """What DTensor tries an operator on: it asks for shapes only, and C++ may have no GPU."""
    like = spec.tensor_meta
    return torch.empty_strided(like.shape, like.stride, dtype=like.dtype, device="cpu")


@contextmanager
def shapes_found(within):
    """While this lasts, DTensor finds out the shapes and shardings of results, on fake tensors, inside ``within()``: it
    does so for the first operator of its kind, and others are like it."""
    find = getattr(ShardingPropagator, FIND)

    def find_within(propagator, *args, **kwargs):
        with within():
            return find(propagator, *args, **kwargs)

    with (
        patch.object(ShardingPropagator, FIND, find_within),
        patch.object(operators, "_rebuild_tensor_from_dtensor_meta", operand_on_host),
    ):
        yield
