"""Other right answers to the exercises of 03b_collectives_on_clusters: they must pass."""

from itertools import pairwise

import torch
import torch.distributed as dist
from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("tree_reduce")
def the_broadcast_backwards(tensor, dst):
    """The largest distance first."""
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - dst) % p
    distance = 1
    while 2 * distance < p:
        distance *= 2
    arrived = torch.empty_like(tensor)
    while distance and p > 1:
        if distance <= me < 2 * distance:
            dist.send(tensor, (rank - distance) % p)
        elif me < distance and me + distance < p:
            dist.recv(arrived, (rank + distance) % p)
            tensor.add_(arrived)
        distance //= 2


@right("tree_reduce")
def by_the_bits_of_its_place(tensor, dst):
    """A rank sends at its lowest bit, to the place without it."""
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - dst) % p
    lowest = me & -me or 1 << p.bit_length()
    bit = 1
    while bit < lowest and me + bit < p:
        arrived = torch.zeros_like(tensor)
        dist.irecv(arrived, (me + bit + dst) % p).wait()
        torch.add(tensor, arrived, out=tensor)
        bit <<= 1
    if me:
        dist.isend(tensor, (me - lowest + dst) % p).wait()


@right("tree_reduce")
def each_half_for_itself(tensor, dst):
    """By recursion: the second half of the places adds up on its first, which hands it to the first of all."""
    rank, p = dist.get_rank(), dist.get_world_size()
    me, arrived = (rank - dst) % p, torch.empty_like(tensor)

    def collect(first, size):
        if size == 1 or first >= p:
            return
        middle = first + size // 2
        collect(first if me < middle else middle, size // 2)
        if me == middle:
            dist.send(tensor, (first + dst) % p)
        if me == first and middle < p:
            dist.recv(arrived, (middle + dst) % p)
            tensor.add_(arrived)

    collect(0, 1 << (p - 1).bit_length())


def ring_sum(ranks, parts, reduces=True):
    """One ring for both halves: what arrives is added, or kept. Sends are started, and waited for after."""
    me, size = list(ranks).index(dist.get_rank()), len(ranks)
    for step in range(size - 1):
        i = (me - 1 - reduces - step) % size
        arrived = torch.empty_like(parts[i])
        sending = dist.isend(parts[(i + 1) % size], ranks[(me + 1) % size])
        dist.recv(arrived, ranks[(me - 1) % size])
        sending.wait()
        parts[i].copy_(parts[i] + arrived if reduces else arrived)


@right("mended_hierarchy")
def lists_of_ranks(tensor, per_node):
    rank, p = dist.get_rank(), dist.get_world_size()
    mates = [other for other in range(p) if other // per_node == rank // per_node]
    twins = [other for other in range(p) if other % per_node == rank % per_node]
    parts = torch.tensor_split(tensor, per_node)
    ring_sum(mates, parts)
    pieces = parts[rank % per_node].tensor_split(p // per_node)
    ring_sum(twins, pieces)
    ring_sum(twins, pieces, reduces=False)
    ring_sum(mates, parts, reduces=False)


@right("mended_hierarchy")
def by_recursion(tensor, per_node):
    """Inside, then the same with what is left, then inside again."""
    rank, p = dist.get_rank(), dist.get_world_size()
    levels = [range(rank - rank % per_node, rank - rank % per_node + per_node), range(rank % per_node, p, per_node)]

    def all_reduce(piece, rings):
        if rings:
            parts = piece.tensor_split(len(rings[0]))
            ring_sum(rings[0], parts)
            all_reduce(parts[rings[0].index(rank)], rings[1:])
            ring_sum(rings[0], parts, reduces=False)

    all_reduce(tensor, levels)


@right("mended_hierarchy")
def cut_once(tensor, per_node):
    """One cut into g k pieces; a part of the node is k of them in a row."""
    rank, p = dist.get_rank(), dist.get_world_size()
    node, local, nodes = rank // per_node, rank % per_node, p // per_node
    pieces = [piece for part in tensor.tensor_split(per_node) for piece in part.tensor_split(nodes)]
    ends = [sum(len(piece) for piece in pieces[: i * nodes]) for i in range(per_node + 1)]
    parts = [tensor[start:end] for start, end in pairwise(ends)]
    inside, across = [node * per_node + i for i in range(per_node)], [i * per_node + local for i in range(nodes)]
    mine = pieces[local * nodes : (local + 1) * nodes]
    for ranks, row in ((inside, parts), (across, mine)):
        ring_sum(ranks, row)
    for ranks, row in ((across, mine), (inside, parts)):
        ring_sum(ranks, row, reduces=False)
