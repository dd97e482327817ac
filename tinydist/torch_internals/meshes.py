"""DTensor's propagation of shardings."""

from contextlib import contextmanager

from torch.distributed.tensor._sharding_prop import ShardingPropagator

FIND = "propagate_op_sharding_non_cached"


@contextmanager
def shapes_found(within):
    """While this lasts, DTensor finds out the shapes and shardings of results, on fake tensors, inside ``within()``: it
    does so for the first operator of its kind, and others are like it."""
    find = getattr(ShardingPropagator, FIND)

    def find_within(propagator, *args, **kwargs):
        with within():
            return find(propagator, *args, **kwargs)

    setattr(ShardingPropagator, FIND, find_within)
    try:
        yield
    finally:
        setattr(ShardingPropagator, FIND, find)
