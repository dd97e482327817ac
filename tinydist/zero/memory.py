"""A bucket's memory, and what the meter is told of it: what it is for, and whose each number is.

The one place where a technique speaks to the ledger (annotate.py). Without one, this makes zeros.
"""

import torch
import torch.distributed as dist

from ..annotate import label, purpose


def whole_memory(bucket, use, dtype):
    """[p k]: all parameters, and padding. Of parameters, each part is that of the rank which owns it."""
    with purpose(use):
        whole = torch.zeros(bucket.ranks * bucket.layout.own, dtype=dtype, device=bucket.device)
    views = bucket.layout.views(whole)
    if use != "parameters":
        for parameter, view in zip(bucket.parameters, views):
            label(view, parameter)
        return whole
    flat = [view.view(-1) for view in views]
    for rank, owner in enumerate(dist.get_process_group_ranks(bucket.group)):
        for parameter, numbers, (start, _, size) in zip(bucket.parameters, flat, bucket.layout.segments(rank)):
            if size:
                label(numbers[start : start + size], parameter, shard=owner)
    return whole


def own_memory(bucket, use, dtype):
    """[k]: this rank's part."""
    with purpose(use):
        own = torch.zeros(bucket.layout.own, dtype=dtype, device=bucket.device)
    for parameter, (_, place, size) in bucket.segments.items():
        if size:
            label(own[place : place + size], parameter, shard=dist.get_rank())
    return own


def to_travel(laid_out, whole):
    """A row that is sent, or arrives: by ``row_for`` or ``by_rank`` of a layout. In a row, it is ``whole`` itself."""
    with purpose("communication"):
        return laid_out(whole)


def room_for(parameter, shape):
    """All of a parameter, for as long as it is being initialized."""
    with purpose("parameters"):
        return label(torch.empty(shape, dtype=parameter.dtype, device=parameter.device), parameter)
