"""Wrong answers to the exercises of 03b_collectives_on_clusters: the property that rejects each, and what it is told."""

import torch
import torch.distributed as dist
from lab.registered import collection

from tinydist.collectives import tree

WRONG_ANSWERS, wrong = collection()


# tree_reduce


@wrong("tree_reduce", "values", "rank 0 still has its own numbers: nothing was added")
def reduces_nothing(tensor, dst):
    pass


@wrong("tree_reduce", "values", "nothing was added")
def returns_its_input(tensor, dst):
    return tensor


@wrong("tree_reduce", "own work", "you call reduce of torch.distributed; build it yourself")
def torchs_own(tensor, dst):
    dist.reduce(tensor, dst)


@wrong("tree_reduce", "own work", "you call tinydist.collectives, where this is solved")
def librarys_own(tensor, dst):
    tree.reduce(tensor, dst)


@wrong("tree_reduce", "values", "With 2 ranks this is right.")
def for_one_pair(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    if p != 2:
        return
    if rank != dst:
        dist.send(tensor, dst)
    else:
        arrived = torch.empty_like(tensor)
        dist.recv(arrived, 1 - rank)
        tensor += arrived


@wrong("tree_reduce", "messages", "rank 1 receives 3 messages, where 2 are enough: all goes to one rank, a star")
def a_star(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor, dst)
        return
    arrived = torch.empty_like(tensor)
    for other in range(p):
        if other != dst:
            dist.recv(arrived, other)
            tensor += arrived


@wrong("tree_reduce", "time", "1.50 times as long. In each round all ranks that are still there should be busy")
def a_chain(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    arrived = torch.empty_like(tensor)
    if (rank + 1 - dst) % p:
        dist.recv(arrived, (rank + 1) % p)
        tensor += arrived
    if rank != dst:
        dist.send(tensor, (rank - 1) % p)


@wrong("tree_reduce", "values", "This is a broadcast: tensors are copied away from dst")
def broadcast_of_the_notebook(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    me, know = (rank - dst) % p, 1
    while know < p:
        if me < know and me + know < p:
            dist.send(tensor, (rank + know) % p)
        elif know <= me < 2 * know:
            dist.recv(tensor, (rank - know) % p)
        know *= 2


def up_the_tree(tensor, dst, add=torch.Tensor.add_):
    rank, p = dist.get_rank(), dist.get_world_size()
    me, arrived, distance = (rank - dst) % p, torch.empty_like(tensor), 1
    while distance < p:
        if me % (2 * distance) == distance:
            return dist.send(tensor, (rank - distance) % p)
        if me + distance < p:
            dist.recv(arrived, (rank + distance) % p)
            add(tensor, arrived)
        distance *= 2


@wrong("tree_reduce", "values", "The sum stands on rank 0, and is asked for on dst")
def always_on_rank_0(tensor, dst):
    up_the_tree(tensor, 0)


@wrong("tree_reduce", "values", "What arrives is not added to what stands there")
def copies_what_arrives(tensor, dst):
    up_the_tree(tensor, dst, torch.Tensor.copy_)


@wrong("tree_reduce", "values", "returns a new tensor, but the task is to work in place")
def returns_the_sum(tensor, dst):
    total = tensor.clone()
    up_the_tree(total, dst)
    return total


@wrong("tree_reduce", "memory", "what arrives, and what arrived before it")
def adds_up_at_the_end(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    me, found, distance = (rank - dst) % p, [], 1
    while distance < p and me % distance == 0:
        if me % (2 * distance) == distance:
            dist.send(sum(found, tensor), (rank - distance) % p)
        elif me + distance < p:
            found.append(torch.empty_like(tensor))
            dist.recv(found[-1], (rank + distance) % p)
        distance *= 2
    for each in found:
        tensor += each


@wrong("tree_reduce", "values", "but those of rank 1 are in it 2 times")
def adds_its_neighbor_twice(tensor, dst):
    up_the_tree(tensor, dst, lambda total, arrived: total.add_(2 * arrived))


@wrong("tree_reduce", "bytes", "the ranks send 40 bytes in all, where 20 are right: (p-1) n")
def the_sum_for_all(tensor, dst):
    """An all-reduce of partners, where their number is a power of two."""
    rank, p = dist.get_rank(), dist.get_world_size()
    if p & (p - 1):
        return up_the_tree(tensor, dst)
    distance, arrived = 1, torch.empty_like(tensor)
    while distance < p:
        partner = rank ^ distance
        both = [dist.P2POp(dist.isend, tensor, partner), dist.P2POp(dist.irecv, arrived, partner)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        tensor += arrived
        distance *= 2


@wrong("tree_reduce", "runs", "Not every rank has somebody to receive from")
def powers_of_two_only(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    me, arrived, distance = (rank - dst) % p, torch.empty_like(tensor), 1
    while distance < p:
        if me % (2 * distance) == distance:
            dist.send(tensor, (rank - distance) % p)
            return
        dist.recv(arrived, (rank + distance) % p)
        tensor += arrived
        distance *= 2


@wrong("tree_reduce", "waits", "rank 0 does not wait for 1 message")
def waits_for_nothing(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    me, distance = (rank - dst) % p, 1
    arrived = torch.empty_like(tensor)
    while distance < p:
        if me % (2 * distance) == distance:
            dist.isend(tensor, (rank - distance) % p)
            return
        if me + distance < p:
            dist.irecv(arrived, (rank + distance) % p)
            tensor += arrived
        distance *= 2
