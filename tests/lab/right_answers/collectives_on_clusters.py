"""Other right answers to the exercises of 03b_collectives_on_clusters: they must pass."""

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
