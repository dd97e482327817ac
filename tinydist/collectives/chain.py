"""A pipelined chain: each rank forwards the tensor in chunks, sending one while it receives the next.

    rank 0    1  2  3  4
    rank 1       1  2  3  4             m = 4 chunks over p = 4 ranks: p - 2 + m steps
    rank 2          1  2  3  4

    broadcast    (p - 2 + m) (alpha + n/(m beta))

For large n that comes near to n/beta, however many ranks there are: a tree sends all n ceil(lg p) times. The best m
balances what is left of alpha and of n/beta: m = sqrt((p-2) n/(alpha beta)).
Source: Sanders, Speck, Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, 2009, on
pipelines. NCCL's rings broadcast so.
"""

import math

import torch
import torch.distributed as dist

from ..hardware import Link
from ..hardware.costs import p2p_time
from ..rules import amount, count, listed, validate, whole
from .messages import as_contiguous_1d, check_root, place, place_of
from .sends import Cost, part_sizes


@validate(tensor=torch.Tensor, group=dist.ProcessGroup, chunks=listed)
def broadcast(tensor, src=0, group=None, chunks=8):
    """``tensor`` becomes that of rank ``src`` of the world; it travels in ``chunks``."""
    rank, p = place(group)
    mine, parts = (rank - place_of(src, group)) % p, as_contiguous_1d(tensor, "broadcast").tensor_split(chunks)
    arriving, leaving = [], []
    if mine > 0:
        arriving = [dist.irecv(part, group=group, group_src=(rank - 1) % p) for part in parts]
    for number, part in enumerate(parts):
        if arriving:
            arriving[number].wait()
        if mine < p - 1:
            leaving.append(dist.isend(part, group=group, group_dst=(rank + 1) % p))
    for message in leaving:
        message.wait()


@validate(num_elements=whole, ranks=listed, chunks=listed, itemsize=whole)
def broadcast_cost(num_elements, ranks, root=0, chunks=8, itemsize=4) -> Cost:
    """All but the last rank of the chain send n. The first, largest chunk goes all the way, the others follow it."""
    check_root(root, ranks)
    sends = [rank != (root - 1) % ranks for rank in range(ranks)]
    sizes = [itemsize * size for size in part_sizes(num_elements, chunks)]
    steps = [(ranks - 2, sizes[0])] + [(1, size) for size in sizes] if ranks > 1 else []
    return Cost([sum(sizes) * s for s in sends], [chunks * s for s in sends], steps)


@validate(nbytes=amount, ranks=count, link=Link)
def best_chunks(nbytes, ranks, link: Link) -> int:
    """The number of chunks that takes the least time: one of the two integers next to the best m.

    A chunk has a byte at least. So on a link without latency, where smaller ones are always better, each has one.
    """
    waits, most = max(0, ranks - 2) * nbytes, max(1, int(nbytes))
    if not waits:
        return 1  # any number takes as long, but for rounding
    paid = link.latency * link.bandwidth
    below = math.isqrt(int(min(waits / paid, most**2))) if paid > 0 else most
    beside = (min(max(1, m), most) for m in (0, below, below + 1))
    return min(beside, key=lambda m: (ranks - 2 + m) * p2p_time(nbytes / m, link))
