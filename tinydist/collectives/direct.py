"""Direct exchange: every rank sends part j straight to rank j, which adds what it gets and sends its sum to all.

    step 0    0 -> 1, 2, 3    1 -> 0, 2, 3    2 -> 0, 1, 3    3 -> 0, 1, 2      part j of each to rank j
    step 1    the same ranks again: the sum of part j from rank j to each

    reduce_scatter, all_gather    alpha + (p-1)/p n/beta
    all_reduce                    2 (alpha + (p-1)/p n/beta)

The bytes of a ring in two steps: the p-1 messages of a step share a rank's port, and their latencies pass together. It
needs a wire from each rank to each, p-1 connections per rank, and memory for p-1 parts besides the tensor. Parts are
added in the order of the ranks. Servers have it in a node, where GPUs read each other's memory: torch's
``symm_mem.two_shot_all_reduce_``, vLLM's ``cross_device_reduce_2stage`` (vllm@c9eabec7 csrc/custom_all_reduce.cuh,
read), NCCL's ``AllReduce_RSxLD_AGxST`` on symmetric memory (nccl@5067397c src/device/symmetric/all_reduce.cuh, read).
"""

import torch
from torch.distributed import ProcessGroup, ReduceOp

from ..hardware.costs import direct_steps
from ..rules import amount, each_of, listed, validate, whole
from .messages import as_contiguous_1d, check_parts, exchange_at_once, place
from .reduction import combined, known
from .sends import Cost, part_sizes


@validate(output=torch.Tensor, parts=each_of(torch.Tensor), op=known, group=ProcessGroup)
def reduce_scatter(output, parts, op=ReduceOp.SUM, group=None):
    """``output`` becomes the sum of all ranks' ``parts[rank]``. One part for each rank; they are left as they are."""
    rank, p = place(group)
    check_parts("reduce_scatter", parts, p, rank, output)
    arrived = [parts[rank] if source == rank else torch.empty_like(parts[rank]) for source in range(p)]
    exchange_with_all(parts, arrived, group)
    output.copy_(combined(arrived, op))


@validate(parts=each_of(torch.Tensor), tensor=torch.Tensor, group=ProcessGroup)
def all_gather(parts, tensor, group=None):
    """``parts[r]`` becomes rank r's ``tensor``."""
    rank, p = place(group)
    check_parts("all_gather", parts, p, rank, tensor)
    parts[rank].copy_(tensor)
    exchange_with_all([tensor] * p, parts, group)


@validate(tensor=torch.Tensor, op=known, group=ProcessGroup)
def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    """``tensor`` becomes the sum of all ranks' tensors."""
    rank, p = place(group)
    parts = as_contiguous_1d(tensor, "all_reduce").tensor_split(p)
    reduce_scatter(parts[rank], parts, op, group)
    all_gather(parts, parts[rank], group)


def exchange_with_all(outgoing, incoming, group):
    """``outgoing[r]`` goes to rank r, ``incoming[r]`` comes from it, for all other ranks at once."""
    rank, p = place(group)
    pairs = [((rank + step) % p, (rank - step) % p) for step in range(1, p)]
    exchange_at_once([(outgoing[to], to, incoming[source], source) for to, source in pairs], group)


@validate(sizes=each_of(amount))
def reduce_scatter_cost(sizes) -> Cost:
    """Of parts of these bytes: rank r sends all but part r. Who gets the largest part gets it p-1 times."""
    p = len(sizes)
    return Cost([sum(sizes) - size for size in sizes], [p - 1] * p, direct_steps(max(sizes), p))


@validate(sizes=each_of(amount))
def all_gather_cost(sizes) -> Cost:
    """Of parts of these bytes: rank r sends part r to each other rank."""
    p = len(sizes)
    return Cost([(p - 1) * size for size in sizes], [p - 1] * p, direct_steps(max(sizes), p))


@validate(num_elements=whole, ranks=listed, itemsize=whole)
def all_reduce_cost(num_elements, ranks, itemsize=4) -> Cost:
    """Of ``num_elements`` elements of ``itemsize`` bytes: 2(p-1)/p n a rank if they divide evenly."""
    sizes = [itemsize * size for size in part_sizes(num_elements, ranks)]
    return reduce_scatter_cost(sizes).then(all_gather_cost(sizes))
