"""Data movement of each collective, once all its ranks have arrived. ``calls`` are in group-rank order.

Sums run in the order of ranks, so every rank and every way to shard gets the same bits.
"""

import torch
from torch.distributed import ReduceOp

from ..reduce import COMBINE, reduced
from ..torch_internals import copy_all

NAMES = {int(getattr(ReduceOp, name)): name for name in COMBINE}


def put(outputs, sources):
    """Copy pairwise. Through ``.data``, since a real backend leaves the version counters of autograd alone too."""
    copy_all([output.data for output in outputs], sources)


def all_reduce(calls, reduction):
    for tensors in zip(*[call.inputs for call in calls], strict=True):
        if any([tensor.is_sparse for tensor in tensors]):
            sum_up(tensors)
        else:
            put(tensors, [reduced(tensors, reduction)] * len(tensors))


def sum_up(tensors):
    """All sparse tensors become their sum, which has the indices of all."""
    with torch.inference_mode(False), torch.no_grad():  # else those indices could not be saved for backward
        total = sum(tensors[1:], tensors[0]).coalesce()
        for tensor in tensors:
            tensor.copy_(total)


def reduce(calls, reduction, root):
    for output, *tensors in zip(calls[root].inputs, *(call.inputs for call in calls), strict=True):
        put([output], [reduced(tensors, reduction)])


def broadcast(calls, root):
    for call in calls:
        if call is not calls[root]:
            put(call.inputs, calls[root].inputs)


def all_gather(calls):
    """``outputs[part][source]`` from ``inputs[part]``."""
    for part in range(len(calls[0].inputs)):
        sources = [call.inputs[part] for call in calls]
        for call in calls:
            copy_all(call.outputs[part], sources)


def reduce_scatter(calls, reduction):
    """``outputs[part]`` from ``inputs[part][destination]``."""
    for part in range(len(calls[0].inputs)):
        totals = [reduced(column, reduction) for column in zip(*(call.inputs[part] for call in calls), strict=True)]
        copy_all([call.outputs[part] for call in calls], totals)


def all_to_all(calls):
    """``outputs[source]`` from ``inputs[destination]``."""
    for destination, call in enumerate(calls):
        copy_all(call.outputs, [source.inputs[destination] for source in calls])


def gather(calls, root):
    """``outputs[0][source]`` of the root."""
    copy_all(calls[root].outputs[0], [call.inputs[0] for call in calls])


def scatter(calls, root):
    """From ``inputs[0][destination]`` of the root."""
    put([call.outputs[0] for call in calls], calls[root].inputs[0])
