"""Each algorithm beside torch.distributed's own collective, and what it should cost."""

from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from tinydist.collectives import (
    chain,
    direct,
    doubling,
    halving,
    multi_ring,
    pairwise,
    part_sizes,
    ring,
    star,
    star_in_chunks,
    tree,
)

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
REDUCES = {
    ReduceOp.SUM: (*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.complex128),
    ReduceOp.AVG: (*FLOATS, *INTEGERS, torch.complex64),
    ReduceOp.PRODUCT: (*FLOATS, *INTEGERS, torch.bool),
    ReduceOp.MIN: (*FLOATS, *INTEGERS, torch.bool),
    ReduceOp.MAX: (*FLOATS, *INTEGERS, torch.bool),
    ReduceOp.BAND: (*INTEGERS, torch.bool),
    ReduceOp.BOR: (*INTEGERS, torch.bool),
    ReduceOp.BXOR: (*INTEGERS, torch.bool),
}


class Case(NamedTuple):
    count: int = 12  # numbers in the tensor
    root: int = 0
    op: object = ReduceOp.SUM
    dtype: torch.dtype = torch.float32
    chunks: int = 3


def numbers(count, dtype, of=0):
    """Small whole numbers, so that no sum is rounded, others on each rank."""
    generator = torch.Generator().manual_seed(1000 * dist.get_rank() + of)
    return torch.randint(0, 4, (count,), generator=generator).to(dtype)


# Each runs an algorithm, or torch's own if ``library`` is dist, and returns what it leaves behind. Where torch wants
# equal parts, it goes part by part.


def all_reduce(library, case, group):
    tensor = numbers(case.count, case.dtype)
    chunks = {"chunks": case.chunks} if library is star_in_chunks else {}
    library.all_reduce(tensor, op=case.op, group=group, **chunks)
    return tensor


def broadcast(library, case, group):
    tensor = numbers(case.count, case.dtype)
    chunks = {"chunks": case.chunks} if library is chain else {}
    library.broadcast(tensor, src=case.root, group=group, **chunks)
    return tensor


def reduce(library, case, group):
    tensor = numbers(case.count, case.dtype)
    library.reduce(tensor, dst=case.root, op=case.op, group=group)
    return tensor[: case.count if dist.get_rank() == case.root else 0]  # gloo leaves partial sums with the others


def all_gather(library, case, group):
    rank, p = dist.get_rank(group), dist.get_world_size(group)
    parts = [torch.zeros(size, dtype=case.dtype) for size in part_sizes(case.count, p)]
    mine = numbers(parts[rank].numel(), case.dtype)
    if library is dist:
        parts[rank].copy_(mine)
        for source, part in enumerate(parts):
            dist.broadcast(part, group=group, group_src=source)
    else:
        library.all_gather(parts, mine, group)
    return torch.cat(parts)


def reduce_scatter(library, case, group):
    rank, p = dist.get_rank(group), dist.get_world_size(group)
    parts = [numbers(size, case.dtype, of=part) for part, size in enumerate(part_sizes(case.count, p))]
    if library is dist:
        for destination, part in enumerate(parts):
            dist.reduce(part, op=case.op, group=group, group_dst=destination)
        return parts[rank]
    before, output = [part.clone() for part in parts], torch.empty_like(parts[rank])
    library.reduce_scatter(output, parts, case.op, group)
    assert all(map(torch.equal, parts, before)), "the input must stay as it is"
    return output


def all_to_all(library, case, group):
    rank, p = dist.get_rank(group), dist.get_world_size(group)
    table = pairs(case, p)
    sent, received = table[rank], [row[rank] for row in table]
    inputs = numbers(sum(sent), case.dtype)
    outputs = torch.empty(sum(received), dtype=case.dtype)
    if library is dist:
        dist.all_to_all_single(outputs, inputs, received, sent, group)
    else:
        library.all_to_all(outputs.split(received), inputs.split(sent), group)
    return outputs


def pairs(case, p):
    """[source][destination]: how many numbers go there."""
    return [[(case.count + 2 * source + destination) % 5 for destination in range(p)] for source in range(p)]


def in_many_rings(tensor, op, group):
    """With as many ranks in a node as there can be, up to 4."""
    p = dist.get_world_size(group)
    multi_ring.all_reduce(tensor, max(g for g in (1, 2, 3, 4) if p % g == 0), op, group)


farthest_first = SimpleNamespace(all_reduce=partial(halving.all_reduce, first="farthest"))
many_rings = SimpleNamespace(all_reduce=in_many_rings)

ALGORITHMS = {
    "star all-reduce": (all_reduce, star),
    "star in chunks": (all_reduce, star_in_chunks),
    "direct all-reduce": (all_reduce, direct),
    "ring all-reduce": (all_reduce, ring),
    "tree all-reduce": (all_reduce, tree),
    "halving all-reduce": (all_reduce, halving),
    "halving all-reduce, farthest first": (all_reduce, farthest_first),
    "doubling all-reduce": (all_reduce, doubling),
    "multi-ring all-reduce": (all_reduce, many_rings),
    "ring all-gather": (all_gather, ring),
    "ring reduce-scatter": (reduce_scatter, ring),
    "direct all-gather": (all_gather, direct),
    "direct reduce-scatter": (reduce_scatter, direct),
    "star broadcast": (broadcast, star),
    "tree broadcast": (broadcast, tree),
    "chain broadcast": (broadcast, chain),
    "star reduce": (reduce, star),
    "tree reduce": (reduce, tree),
    "pairwise all-to-all": (all_to_all, pairwise),
}


def cost(name, case, p):
    """What ``ALGORITHMS[name]`` says that it costs."""
    itemsize, nbytes = case.dtype.itemsize, case.count * case.dtype.itemsize
    sizes = [size * itemsize for size in part_sizes(case.count, p)]
    bytes_of_pairs = [[itemsize * count for count in row] for row in pairs(case, p)]
    return {
        "star all-reduce": lambda: star.all_reduce_cost(case.count, p, itemsize),
        "star in chunks": lambda: star_in_chunks.all_reduce_cost(case.count, p, case.chunks, itemsize),
        "direct all-reduce": lambda: direct.all_reduce_cost(case.count, p, itemsize),
        "direct all-gather": lambda: direct.all_gather_cost(sizes),
        "direct reduce-scatter": lambda: direct.reduce_scatter_cost(sizes),
        "star broadcast": lambda: star.broadcast_cost(nbytes, p, case.root),
        "star reduce": lambda: star.reduce_cost(nbytes, p, case.root),
        "ring all-reduce": lambda: ring.all_reduce_cost(case.count, p, itemsize),
        "tree all-reduce": lambda: tree.all_reduce_cost(case.count, p, itemsize),
        "halving all-reduce": lambda: halving.all_reduce_cost(case.count, p, itemsize),
        "halving all-reduce, farthest first": lambda: halving.all_reduce_cost(case.count, p, itemsize, "farthest"),
        "doubling all-reduce": lambda: doubling.all_reduce_cost(case.count, p, itemsize),
        "ring all-gather": lambda: ring.all_gather_cost(sizes),
        "ring reduce-scatter": lambda: ring.reduce_scatter_cost(sizes),
        "tree broadcast": lambda: tree.broadcast_cost(nbytes, p, case.root),
        "chain broadcast": lambda: chain.broadcast_cost(case.count, p, case.root, case.chunks, itemsize),
        "tree reduce": lambda: tree.reduce_cost(nbytes, p, case.root),
        "pairwise all-to-all": lambda: pairwise.all_to_all_cost(bytes_of_pairs),
    }[name]()
