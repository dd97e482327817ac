"""Wrong answers to the exercises of 03b_collectives_on_clusters: with what rejects each, and what it is told."""

import torch
import torch.distributed as dist
from lab.registered import collection, solved

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


# chain_reduce


@wrong("chain_reduce", "values", "numbers are wrong")
def reduces_nothing(tensor, chunks):
    pass


@wrong("chain_reduce", "own work", "torch.distributed.reduce")
def torchs_own_reduce(tensor, chunks):
    dist.reduce(tensor, 0)


@wrong("chain_reduce", "messages", "every message carries the whole tensor, 32 bytes")
def in_one_piece(tensor, chunks):
    return solved("chain_reduce")(tensor, 1)


@wrong("chain_reduce", "time", "times as long")
def all_of_it_before_it_goes_on(tensor, chunks):
    """A rank collects all chunks before it sends the first."""
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = tensor.tensor_split(chunks)
    arrived = torch.empty_like(parts[0])
    for part in parts if rank < p - 1 else ():
        dist.recv(arrived[: len(part)], rank + 1)
        part += arrived[: len(part)]
    for part in parts if rank else ():
        dist.send(part, rank - 1)


@wrong("chain_reduce", "memory", "bytes")
def a_copy_first(tensor, chunks):
    copy = tensor.clone()
    solved("chain_reduce")(copy, chunks)
    tensor.copy_(copy)


# mended_hierarchy


@wrong("mended_hierarchy", "values", "the numbers of ranks 1, 3 are missing.\n")
def nothing_is_summed_in_a_node(tensor, per_node):
    solved("mended_hierarchy", "    reduce_scatter(inside, parts)\n", "")(tensor, per_node)


@wrong("mended_hierarchy", "bytes between nodes", "bytes leave node 0")
def the_whole_part_to_each_node(tensor, per_node):
    """k-1 times, instead of its pieces round a ring."""
    whole = "    kept = mine.clone()\n    passed = mine.clone()\n    for _ in range(len(across) - 1):\n"
    whole += "        arrived = torch.empty_like(mine)\n        pass_on(across, passed, arrived)\n"
    whole += "        kept += arrived\n        passed = arrived\n    mine.copy_(kept)\n"
    ring_across = "    reduce_scatter(across, pieces)\n    all_gather(across, pieces)\n"
    return solved("mended_hierarchy", ring_across, whole)(tensor, per_node)


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
