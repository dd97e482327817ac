"""Allocates bucket buffers and registers them with the memory ledger: their purpose, and the owner of each shard.

Outside the simulator the annotations (annotate.py) do nothing.
"""

import torch
import torch.distributed as dist

from ..annotate import label, purpose


def unsharded_buffer(bucket, use, dtype):
    """[p k]: all parameters, and padding. For parameters, each shard is labelled with the rank that owns it."""
    with purpose(use):
        whole = torch.zeros(bucket.ranks * bucket.sharding.own, dtype=dtype, device=bucket.device)
    views = bucket.sharding.views(whole)
    if use != "parameters":
        for parameter, view in zip(bucket.parameters, views):
            label(view, parameter)
        return whole
    flat = [view.view(-1) for view in views]
    for rank, owner in enumerate(dist.get_process_group_ranks(bucket.group)):
        for parameter, numbers, (start, _, size) in zip(bucket.parameters, flat, bucket.sharding.segments(rank)):
            if size:
                label(numbers[start : start + size], parameter, shard=owner)
    return whole


def shard_buffer(bucket, use, dtype):
    """[k]: this rank's shard."""
    with purpose(use):
        own = torch.zeros(bucket.sharding.own, dtype=dtype, device=bucket.device)
    for parameter, (_, place, size) in bucket.segments.items():
        if size:
            label(own[place : place + size], parameter, shard=dist.get_rank())
    return own


def comm_buffer(laid_out, whole):
    """``laid_out``: a sharding's ``receive_buffer`` or ``pack``. With ``FlatSharding`` it returns ``whole`` itself."""
    with purpose("communication"):
        return laid_out(whole)


def full_parameter(parameter, shape):
    """An unsharded parameter, while it is initialized."""
    with purpose("parameters"):
        return label(torch.empty(shape, dtype=parameter.dtype, device=parameter.device), parameter)
