"""A star in chunks: while the root collects a chunk, the sum of the chunk before is on its way back.

    root receives    1 1 1  2 2 2  3 3 3            from ranks 1, 2, 3
    root sends              1 1 1  2 2 2  3 3 3     to ranks 1, 2, 3: m = 3 chunks over p = 4 ranks

    all_reduce    (p-1) (m+1) (alpha + n/(m beta))

For large n that comes near to (p-1) n/beta, half of what the star takes with whole tensors, whose root never sends and
receives at the same time. The root's bytes stay (p-1) n each way.
"""

from itertools import pairwise

import torch
from torch.distributed import ProcessGroup, ReduceOp

from ..hardware.costs import star_in_chunks_steps
from ..rules import listed, validate, whole
from .messages import as_contiguous_1d, exchange, place, receive, send
from .reduction import add_up, finish, known
from .sends import Cost, part_sizes


@validate(tensor=torch.Tensor, op=known, group=ProcessGroup, chunks=listed)
def all_reduce(tensor, op=ReduceOp.SUM, group=None, chunks=8):
    """``tensor`` becomes the sum of all ranks' tensors; it travels in ``chunks``."""
    rank, p = place(group)
    parts = as_contiguous_1d(tensor, "all_reduce").tensor_split(chunks)
    if rank == 0:
        collect_and_return(parts, op, p, group)
        return
    send(parts[0], 0, group)
    for done, following in pairwise(parts):
        exchange(following, 0, done, 0, group)
    receive(parts[-1], 0, group)


def collect_and_return(parts, op, p, group):
    """On the root: add up a chunk of all ranks, while the chunk before goes back to them."""
    buffer = torch.empty_like(parts[0])
    for done, part in zip((None, *parts), (*parts, None)):
        arrived = None if part is None else buffer[: len(part)]
        for other in range(1, p):
            if done is None:
                receive(arrived, other, group)
            elif part is None:
                send(done, other, group)
            else:
                exchange(done, other, arrived, other, group)
            if part is not None:
                add_up(part, arrived, op)
        if part is not None:
            finish(part, op, p)


@validate(num_elements=whole, ranks=listed, chunks=listed, itemsize=whole)
def all_reduce_cost(num_elements, ranks, chunks=8, itemsize=4) -> Cost:
    """The root sends (p-1) n and each other rank n. Its first, largest chunk comes in before anything goes out."""
    sizes = [itemsize * size for size in part_sizes(num_elements, chunks)]
    messages = [(ranks - 1) * chunks] + [chunks] * (ranks - 1)
    sent = [(ranks - 1) * sum(sizes)] + [sum(sizes)] * (ranks - 1)
    return Cost(sent, messages, star_in_chunks_steps(sizes, ranks))
