"""Wrong answers to the exercises of 03b_collectives_on_clusters: with what rejects each, and what it is told."""

import torch
import torch.distributed as dist
from lab.registered import collection, solved

import tinydist
from tinydist.hardware import costs

WRONG_ANSWERS, wrong = collection()


# tree_reduce


@wrong("tree_reduce", "own work", "torch.distributed.reduce")
def torchs_own(tensor, dst):
    dist.reduce(tensor, dst)


@wrong("tree_reduce", "messages", "receives 3 messages")
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


@wrong("tree_reduce", "time", "1.50 times as long")
def a_chain(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    arrived = torch.empty_like(tensor)
    if (rank + 1 - dst) % p:
        dist.recv(arrived, (rank + 1) % p)
        tensor += arrived
    if rank != dst:
        dist.send(tensor, (rank - 1) % p)


@wrong("tree_reduce", "memory", "holds 49,152 bytes")
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


@wrong("tree_reduce", "bytes", "send 40 bytes")
def the_sum_for_all(tensor, dst):
    """An all-reduce of partners, where their number is a power of two."""
    rank, p = dist.get_rank(), dist.get_world_size()
    if p & (p - 1):
        return solved("tree_reduce")(tensor, dst)
    distance, arrived = 1, torch.empty_like(tensor)
    while distance < p:
        partner = rank ^ distance
        both = [dist.P2POp(dist.isend, tensor, partner), dist.P2POp(dist.irecv, arrived, partner)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        tensor += arrived
        distance *= 2


# mended_hierarchy


@wrong("mended_hierarchy", "values", "its own numbers")
def mends_nothing_at_all(tensor, per_node):
    pass


@wrong("mended_hierarchy", "own work", "torch.distributed.all_reduce")
def one_call(tensor, per_node):
    dist.all_reduce(tensor)


def ring(tensor, ranks):
    """An all-reduce among these."""
    me, size = ranks.index(dist.get_rank()), len(ranks)
    parts = tensor.tensor_split(size)
    for step in range(2 * (size - 1)):
        leaves, comes = (parts[(me - 1 - step - extra) % size] for extra in (0, 1))
        arrived = torch.empty_like(comes)
        for work in dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, leaves, ranks[(me + 1) % size]),
                dist.P2POp(dist.irecv, arrived, ranks[me - 1]),
            ]
        ):
            work.wait()
        comes.copy_(comes + arrived if step < size - 1 else arrived)


@wrong("mended_hierarchy", "bytes", "a star")
def one_rank_of_each_node_goes_across(tensor, per_node):
    """Its node collects on it, and gets the sum from it."""
    rank, p = dist.get_rank(), dist.get_world_size()
    first, arrived = rank - rank % per_node, torch.empty_like(tensor)
    others = range(first + 1, first + per_node)
    if rank != first:
        dist.send(tensor, first)
        dist.recv(tensor, first)
        return
    for other in others:
        dist.recv(arrived, other)
        tensor += arrived
    ring(tensor, range(0, p, per_node))
    for other in others:
        dist.send(tensor, other)


@wrong("mended_hierarchy", "memory", "two parts of n/g besides")
def mends_a_copy(tensor, per_node):
    copy = tensor.clone()
    solved("mended_hierarchy")(copy, per_node)
    tensor.copy_(copy)


def in_turn(messages):
    """In the place of a batch: whose right neighbor has a larger number sends first."""
    send, receive = messages
    both = [send, receive] if dist.get_rank() < send.peer else [receive, send]
    for each in both:
        each.op(each.tensor, each.peer).wait()
    return []


@wrong("mended_hierarchy", "time", "2.84 times as long")
def ranks_take_turns(*arguments):
    return solved("mended_hierarchy", "dist.batch_isend_irecv(", "in_turn(", in_turn=in_turn)(*arguments)


# halving_doubling_any


@wrong("halving_doubling_any", "values", "its own numbers")
def halves_nothing(tensor):
    return tensor


@wrong("halving_doubling_any", "own work", "torch.distributed.all_reduce")
def torchs_own_all_reduce(tensor):
    dist.all_reduce(tensor)


@wrong("halving_doubling_any", "values", "3 ranks, 8 numbers each")
def leaves_out_the_left_over(tensor):
    return solved(
        "halving_doubling_any",
        "other % 2 or other >= 2 * left_over",
        "other < power",
        "if rank not in staying:",
        "left_over = 0\n    if rank not in staying:\n        return\n    if False:",
    )(tensor)


@wrong("halving_doubling_any", "messages", "sends 6 messages to rank 1")
def a_ring_of_parts(tensor):
    ring(tensor, range(dist.get_world_size()))


@wrong("halving_doubling_any", "memory", "holds 458,752 bytes")
def on_a_copy(tensor):
    copy = tensor.clone()
    solved("halving_doubling_any")(copy)
    tensor.copy_(copy)


# choose_algorithm


@wrong("choose_algorithm", "values", "nothing (None)")
def chooses_nothing(nbytes, per_node, nodes, inside, between):
    pass


@wrong("choose_algorithm", "values", "the algorithm is 'ring'")
def always_the_ring(*given):
    return solved("choose_algorithm", "min(seconds.items(), key=lambda item: item[1])", "'ring', seconds['ring']")(
        *given
    )


@wrong("choose_algorithm", "own work", "tinydist.hardware")
def formulas_of_the_library(nbytes, per_node, nodes, inside, between):
    return "ring", costs.ring_all_reduce(nbytes, per_node * nodes, inside)


@wrong("choose_algorithm", "own work", "you call tinydist.hardware, which already solves this")
def runs_it_on_the_clock(nbytes, per_node, nodes, inside, between):
    run = tinydist.launch(lambda: None, 2, backend="simulated")
    return "ring", run.seconds


@wrong("choose_algorithm", "values", "1.44 GB on 2 x 8 A100")
def inside_and_then_the_network(*given):
    return solved("choose_algorithm", "max(in_nodes, over_network)", "(in_nodes + over_network)")(*given)
