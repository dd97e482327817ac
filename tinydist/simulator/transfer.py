"""What a collective does to the tensors once all its ranks are there. ``calls`` are in the order of group ranks.

Sums run in the order of ranks, so every rank and every way to shard gets the same bits.
"""

import torch
from torch.distributed import ReduceOp

from .torch_internals import copy_all

COMBINE = {
    "SUM": torch.add,
    "AVG": torch.add,  # divided once, at the end
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}
NAMES = {int(getattr(ReduceOp, name)): name for name in COMBINE}


def finish(total, reduction, ranks):
    """The tensors of all ranks are in ``total``: a mean is divided now, whole numbers towards zero."""
    if reduction == "AVG":
        # As torch does; a complex number divided by a complex one is rounded more than once
        for part in (total.real, total.imag) if total.is_complex() else (total,):
            part.div_(ranks, rounding_mode=None if part.is_floating_point() else "trunc")
    return total


def reduced(tensors, reduction):
    """One new tensor from those of all ranks."""
    combine = COMBINE[reduction]
    first, *rest = tensors
    total = combine(first, rest[0]) if rest else first.clone()
    for tensor in rest[1:]:
        combine(total, tensor, out=total)
    return finish(total, reduction, len(tensors))


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
