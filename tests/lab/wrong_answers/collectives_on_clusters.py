"""Wrong answers to the exercises of 03b_collectives_on_clusters: with what rejects each, and what it is told."""

from math import log2
from types import SimpleNamespace

import torch
import torch.distributed as dist
from lab.registered import collection

import tinydist
from tinydist.collectives import halving, tree
from tinydist.collectives import ring as all_of_them
from tinydist.hardware import costs

WRONG_ANSWERS, wrong = collection()


# tree_reduce


@wrong("tree_reduce", "values", "rank 0 still has its own numbers: nothing was added")
def reduces_nothing(tensor, dst):
    pass


@wrong("tree_reduce", "values", "nothing was added")
def returns_its_input(tensor, dst):
    return tensor


@wrong("tree_reduce", "own work", "torch.distributed.reduce is not allowed here; build it yourself")
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


@wrong("tree_reduce", "values", "it receives, where in a broadcast it sends")
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


# mended_hierarchy


def rings(per_node):
    """The ranks of this node, and those of the same place in the others."""
    rank, p = dist.get_rank(), dist.get_world_size()
    first = rank - rank % per_node
    return range(first, first + per_node), range(rank % per_node, p, per_node)


def exchange(outgoing, right, incoming, left):
    both = [dist.P2POp(dist.isend, outgoing, right), dist.P2POp(dist.irecv, incoming, left)]
    for work in dist.batch_isend_irecv(both):
        work.wait()


def ring(ranks, parts, reduces=True, move=exchange):
    me, size = ranks.index(dist.get_rank()), len(ranks)
    for step in range(size - 1):
        i = (me - 1 - reduces - step) % size
        arrived = torch.empty_like(parts[i])
        move(parts[(i + 1) % size], ranks[(me + 1) % size], arrived, ranks[(me - 1) % size])
        parts[i].copy_(parts[i] + arrived if reduces else arrived)


def all_reduce_among(ranks, tensor, move=exchange):
    parts = tensor.tensor_split(len(ranks))
    ring(ranks, parts, move=move)
    ring(ranks, parts, reduces=False, move=move)


def hierarchy(tensor, per_node, move=exchange):
    """A right one."""
    inside, across = rings(per_node)
    parts = tensor.tensor_split(per_node)
    ring(inside, parts, move=move)
    all_reduce_among(across, parts[inside.index(dist.get_rank())], move)
    ring(inside, parts, reduces=False, move=move)


@wrong("mended_hierarchy", "bytes between nodes", "the levels are swapped.\n64 bytes leave node 0, where 32 are enough")
def not_mended(tensor, per_node):
    inside, across = rings(per_node)
    parts = tensor.tensor_split(len(across))
    mine = parts[across.index(dist.get_rank())]
    ring(across, parts)
    all_reduce_among(inside, mine)
    ring(across, parts, reduces=False)


@wrong("mended_hierarchy", "values", "every rank still has its own numbers: nothing was added")
def mends_nothing_at_all(tensor, per_node):
    pass


@wrong("mended_hierarchy", "values", "every rank still has its own numbers")
def returns_what_it_got(tensor, per_node):
    return tensor


@wrong("mended_hierarchy", "own work", "torch.distributed.all_reduce is not allowed here; build it yourself")
def one_call(tensor, per_node):
    dist.all_reduce(tensor)


@wrong("mended_hierarchy", "own work", "you call tinydist.collectives, where this is solved")
def the_librarys_ring(tensor, per_node):
    all_of_them.all_reduce(tensor)


@wrong("mended_hierarchy", "bytes between nodes", "48 bytes leave node 0, where 32 are enough")
def a_flat_ring(tensor, per_node):
    all_reduce_among(range(dist.get_world_size()), tensor)


@wrong("mended_hierarchy", "bytes between nodes", "Each rank sends the whole tensor to the other nodes.")
def whole_tensors_across(tensor, per_node):
    inside, across = rings(per_node)
    parts = tensor.tensor_split(per_node)
    ring(inside, parts)
    all_reduce_among(across, tensor)
    ring(inside, parts, reduces=False)


@wrong("mended_hierarchy", "values", "Go back the way that you came")
def gathers_in_the_wrong_order(tensor, per_node):
    inside, across = rings(per_node)
    parts = tensor.tensor_split(per_node)
    pieces = parts[inside.index(dist.get_rank())].tensor_split(len(across))
    ring(inside, parts)
    ring(across, pieces)
    ring(inside, parts, reduces=False)
    ring(across, pieces, reduces=False)


@wrong("mended_hierarchy", "values", "A ring needs as many parts as it has ranks")
def only_the_rings_are_swapped(tensor, per_node):
    inside, across = rings(per_node)
    parts = tensor.tensor_split(len(across))
    ring(inside, parts)
    pieces = parts[inside.index(dist.get_rank())].tensor_split(len(across))
    ring(across, pieces)
    ring(across, pieces, reduces=False)
    ring(inside, parts, reduces=False)


@wrong("mended_hierarchy", "values", "the all-reduce across them is missing")
def each_node_for_itself(tensor, per_node):
    all_reduce_among(rings(per_node)[0], tensor)


@wrong("mended_hierarchy", "bytes", "rank 0 sends 2 times what the others send (64 bytes): this is a star")
def one_rank_of_each_node_goes_across(tensor, per_node):
    """Its node collects on it, and gets the sum from it."""
    rank = dist.get_rank()
    inside, across = rings(per_node)
    first, arrived = inside[0], torch.empty_like(tensor)
    for other in inside[1:]:
        if rank == other:
            dist.send(tensor, first)
        elif rank == first:
            dist.recv(arrived, other)
            tensor += arrived
    if rank == first:
        all_reduce_among(across, tensor)
    for other in inside[1:]:
        if rank == first:
            dist.send(tensor, other)
        elif rank == other:
            dist.recv(tensor, first)


@wrong("mended_hierarchy", "runs", "the world of ranks 0-2 has group ranks 0 to 2, got 3")
def two_in_each_node(tensor, per_node):
    hierarchy(tensor, 2)


@wrong("mended_hierarchy", "values", "and there are as many ranks: a mean, where a sum is right?")
def averages(tensor, per_node):
    hierarchy(tensor, per_node)
    tensor /= dist.get_world_size()


@wrong("mended_hierarchy", "memory", "two parts of n/g besides")
def mends_a_copy(tensor, per_node):
    copy = tensor.clone()
    hierarchy(copy, per_node)
    tensor.copy_(copy)


@wrong("mended_hierarchy", "time", "All ranks of a node should send at the same time")
def ranks_take_turns(tensor, per_node):
    def in_turn(outgoing, right, incoming, left):
        if dist.get_rank() < right:
            dist.send(outgoing, right)
            dist.recv(incoming, left)
        else:
            dist.recv(incoming, left)
            dist.send(outgoing, right)

    hierarchy(tensor, per_node, in_turn)


# halving_doubling_any


@wrong("halving_doubling_any", "values", "every rank still has its own numbers: nothing was added")
def halves_nothing(tensor):
    return tensor


@wrong("halving_doubling_any", "own work", "torch.distributed.all_reduce is not allowed here; build it yourself")
def torchs_own_all_reduce(tensor):
    dist.all_reduce(tensor)


@wrong("halving_doubling_any", "own work", "you call tinydist.collectives, where this is solved")
def librarys_halving(tensor):
    halving.all_reduce(tensor)


@wrong("halving_doubling_any", "runs", "the world of ranks 0-2 has group ranks 0 to 2, got 3")
def of_the_notebook(tensor):
    """All ranks, whatever their number."""
    halve_and_double(tensor, dist.get_rank(), range(1 << (dist.get_world_size() - 1).bit_length()))


@wrong("halving_doubling_any", "values", "at position 0, the numbers of rank 2 are missing")
def leaves_out_the_left_over(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    power = 2 ** (p.bit_length() - 1)
    if rank < power:
        halve_and_double(tensor, rank, list(range(power)))


@wrong("halving_doubling_any", "messages", "Ranks beyond the power of 2 hand their tensors to rank - P")
def of_the_library(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    power = 2 ** (p.bit_length() - 1)
    if rank >= power:
        dist.send(tensor, rank - power)
        dist.recv(tensor, rank - power)
        return
    hand_over(tensor, rank + power, rank + power < p, lambda: halve_and_double(tensor, rank, list(range(power))))


@wrong("halving_doubling_any", "messages", "Whole tensors are exchanged, as in recursive doubling")
def recursive_doubling(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left_over = p - 2 ** (p.bit_length() - 1)
    places = [other for other in range(p) if other % 2 or other >= 2 * left_over]

    def double():
        for bit in range(len(places).bit_length() - 1):
            arrived = torch.empty_like(tensor)
            swap(tensor, arrived, places[places.index(rank) ^ 1 << bit])
            tensor.add_(arrived)

    if rank not in places:
        dist.send(tensor, rank + 1)
        dist.recv(tensor, rank + 1)
    else:
        hand_over(tensor, rank - 1, rank < 2 * left_over, double)


@wrong("halving_doubling_any", "messages", "rank 0 sends 6 messages to rank 1, where 2 are enough")
def a_ring_of_parts(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = tensor.tensor_split(p)
    for step in range(2 * (p - 1)):
        leaves, comes = (parts[(rank - 1 - step - extra) % p] for extra in (0, 1))
        arrived = torch.empty_like(comes)
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, leaves, (rank + 1) % p), dist.P2POp(dist.irecv, arrived, (rank - 1) % p)]
            if p > 1
            else []
        ):
            work.wait()
        comes.copy_(comes + arrived if step < p - 1 else arrived)


@wrong("halving_doubling_any", "memory", "at most the tensor once more")
def on_a_copy(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left_over = p - 2 ** (p.bit_length() - 1)
    places = [other for other in range(p) if other % 2 or other >= 2 * left_over]
    copy = tensor.clone()
    if rank not in places:
        dist.send(copy, rank + 1)
        dist.recv(copy, rank + 1)
    else:
        hand_over(copy, rank - 1, rank < 2 * left_over, lambda: halve_and_double(copy, rank, places))
    tensor.copy_(copy)


@wrong("halving_doubling_any", "time", "The first exchange is the largest, and it goes to the farthest partner")
def farthest_first(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left_over = p - 2 ** (p.bit_length() - 1)
    places = [other for other in range(p) if other % 2 or other >= 2 * left_over]
    if rank not in places:
        dist.send(tensor, rank + 1)
        dist.recv(tensor, rank + 1)
    else:
        hand_over(tensor, rank - 1, rank < 2 * left_over, lambda: halve_and_double(tensor, rank, places, -1))


def hand_over(tensor, other, has_one, algorithm):
    if has_one:
        arrived = torch.empty_like(tensor)
        dist.recv(arrived, other)
        tensor += arrived
    algorithm()
    if has_one:
        dist.send(tensor, other)


def halve_and_double(tensor, rank, places, order=1):
    distances = [1 << bit for bit in range(len(places).bit_length() - 1)][::order]
    piece, steps = tensor, []
    for distance in distances:
        partner = places[places.index(rank) ^ distance]
        kept, given = piece.tensor_split(2)
        if rank > partner:
            kept, given = given, kept
        arrived = torch.empty_like(kept)
        swap(given, arrived, partner)
        kept += arrived
        steps.append((partner, kept, given))
        piece = kept
    for partner, kept, given in reversed(steps):
        swap(kept, given, partner)


def swap(outgoing, incoming, partner):
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, outgoing, partner), dist.P2POp(dist.irecv, incoming, partner)]
    ):
        work.wait()


# choose_algorithm


def times(nbytes, per_node, nodes, inside, between, **changed):
    """Right seconds of all five, but for what is changed."""
    p, n = per_node * nodes, nbytes
    near, far = per_node.bit_length() - 1, nodes.bit_length() - 1
    link = between if nodes > 1 else inside
    (a, b), (c, d) = ((each.latency, each.bandwidth) for each in (inside, between))
    found = {"ring": 2 * (p - 1) * (link.latency + n / (p * link.bandwidth))}
    if nodes > 1 and per_node > 1:
        inner = 2 * (per_node - 1) * (a + n / (per_node * b))
        found["hierarchical"] = inner + 2 * (nodes - 1) * (c + n / (p * d))
        part = n / (per_node * p)
        found["several rings"] = 2 * (p - 1) * max((per_node - 1) * (a + part / b), c + part / d)
    if p & (p - 1) == 0:
        found["recursive doubling"] = near * (a + n / b) + far * (c + n / d)
        crossing = n / per_node * (nodes - 1) / nodes
        found["nearest first"] = 2 * (near * a + n * (per_node - 1) / per_node / b + far * c + crossing / d)
    found |= {name: seconds for name, seconds in changed.items() if name in found}
    return found


def least(found):
    return min(found.items(), key=lambda item: item[1])


@wrong("choose_algorithm", "values", "it returned nothing (None), where 2 things are right")
def chooses_nothing(nbytes, per_node, nodes, inside, between):
    pass


@wrong("choose_algorithm", "values", "where 2 things are right: the algorithm, the number of seconds")
def returns_only_the_name(nbytes, per_node, nodes, inside, between):
    return least(times(nbytes, per_node, nodes, inside, between))[0]


@wrong("choose_algorithm", "values", "No algorithm is the fastest for all sizes")
def always_nearest_first(nbytes, per_node, nodes, inside, between):
    found = times(nbytes, per_node, nodes, inside, between)
    name = "nearest first" if "nearest first" in found else "ring"
    return name, found[name]


@wrong("choose_algorithm", "values", "No algorithm is the fastest for all sizes")
def always_the_ring(nbytes, per_node, nodes, inside, between):
    return "ring", times(nbytes, per_node, nodes, inside, between)["ring"]


@wrong("choose_algorithm", "values", "the slowest")
def the_slowest(nbytes, per_node, nodes, inside, between):
    return max(times(nbytes, per_node, nodes, inside, between).items(), key=lambda item: item[1])


@wrong("choose_algorithm", "own work", "you call tinydist.hardware, where this is solved; here it is arithmetic")
def formulas_of_the_library(nbytes, per_node, nodes, inside, between):
    return "ring", costs.ring_all_reduce(nbytes, per_node * nodes, inside)


@wrong("choose_algorithm", "runs", "nested launch() is not supported")
def runs_it_on_the_clock(nbytes, per_node, nodes, inside, between):
    run = tinydist.launch(lambda: None, 2, backend="simulated")
    return "ring", run.seconds


@wrong("choose_algorithm", "values", "Here beta is bytes per second: divide by it")
def seconds_per_byte(nbytes, per_node, nodes, inside, between):
    inverse = [SimpleNamespace(latency=link.latency, bandwidth=1 / link.bandwidth) for link in (inside, between)]
    return least(times(nbytes, per_node, nodes, *inverse))


@wrong("choose_algorithm", "values", "After the exchanges inside each rank has 1/g of the tensor left")
def the_whole_tensor_between_the_nodes(nbytes, per_node, nodes, inside, between):
    found = times(nbytes, per_node, nodes, inside, between)
    if "nearest first" in found:
        found["nearest first"] += 2 * (nbytes - nbytes / per_node) * (nodes - 1) / nodes / between.bandwidth
    return least(found)


@wrong("choose_algorithm", "values", "the longer counts")
def inside_and_then_the_network(nbytes, per_node, nodes, inside, between):
    found = times(nbytes, per_node, nodes, inside, between)
    if "several rings" in found:
        p = per_node * nodes
        part = nbytes / (per_node * p)
        one = (per_node - 1) * (inside.latency + part / inside.bandwidth) + between.latency + part / between.bandwidth
        found["several rings"] = 2 * (p - 1) * one
    return least(found)


@wrong("choose_algorithm", "values", "which takes a power of 2 of them")
def pairs_any_number(nbytes, per_node, nodes, inside, between):
    p, n = per_node * nodes, nbytes
    found = times(nbytes, per_node, nodes, inside, between)
    near, far = log2(per_node), log2(nodes)
    (a, b), (c, d) = ((each.latency, each.bandwidth) for each in (inside, between))
    found["recursive doubling"] = near * (a + n / b) + far * (c + n / d)
    crossing = n / per_node * (nodes - 1) / nodes
    found["nearest first"] = 2 * (near * a + n * (per_node - 1) / per_node / b + far * c + crossing / d)
    return least(found) if p else None


@wrong("choose_algorithm", "values", "In a ring over several nodes each step waits for its slowest message")
def a_ring_at_the_speed_inside(nbytes, per_node, nodes, inside, between):
    p = per_node * nodes
    ring = 2 * (p - 1) * (inside.latency + nbytes / (p * inside.bandwidth))
    return least(times(nbytes, per_node, nodes, inside, between, ring=ring))


@wrong("choose_algorithm", "values", "each step also costs its latency")
def bytes_alone(nbytes, per_node, nodes, inside, between):
    links = [SimpleNamespace(latency=0, bandwidth=link.bandwidth) for link in (inside, between)]
    return least(times(nbytes, per_node, nodes, *links))


@wrong("choose_algorithm", "values", "the number of seconds")
def in_microseconds(nbytes, per_node, nodes, inside, between):
    name, seconds = least(times(nbytes, per_node, nodes, inside, between))
    return name, seconds * 1e6


@wrong("tree_reduce", "values", "and adds in place, with +=")
def sums_in_a_new_tensor(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - dst) % p
    arrived = torch.empty_like(tensor)
    distance = 1
    while distance < p:
        if me % (2 * distance):
            dist.send(tensor, (rank - distance) % p)
            return
        if me + distance < p:
            dist.recv(arrived, (rank + distance) % p)
            tensor = tensor + arrived
        distance *= 2


@wrong("tree_reduce", "runs", "it does not end")
def never_doubles(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - dst) % p
    arrived = torch.empty_like(tensor)
    distance = 1
    while distance < p:
        if me % (2 * distance):
            dist.send(tensor, (rank - distance) % p)
            return
        if me + distance >= p:
            continue
        dist.recv(arrived, (rank + distance) % p)
        tensor += arrived
        distance *= 2


@wrong("mended_hierarchy", "runs", "A ring has as many parts as ranks")
def parts_of_the_other_ring(tensor, per_node):
    rank, p = dist.get_rank(), dist.get_world_size()

    def pass_on(ranks, outgoing, incoming):
        me = ranks.index(rank)
        right, left = ranks[(me + 1) % len(ranks)], ranks[me - 1]
        both = [dist.P2POp(dist.isend, outgoing, right), dist.P2POp(dist.irecv, incoming, left)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    def reduce_scatter(ranks, parts):
        me, size = ranks.index(rank), len(ranks)
        arrived = torch.empty_like(parts[0])
        for step in range(size - 1):
            grows = parts[(me - 2 - step) % size]
            pass_on(ranks, parts[(me - 1 - step) % size], arrived[: len(grows)])
            grows += arrived[: len(grows)]

    def all_gather(ranks, parts):
        me, size = ranks.index(rank), len(ranks)
        for step in range(size - 1):
            pass_on(ranks, parts[(me - step) % size], parts[(me - 1 - step) % size])

    first = rank - rank % per_node  # of this node
    inside = range(first, first + per_node)
    across = range(rank % per_node, p, per_node)

    parts = tensor.tensor_split(len(across))
    mine = parts[inside.index(rank)]
    reduce_scatter(inside, parts)
    pieces = mine.tensor_split(per_node)
    reduce_scatter(across, pieces)
    all_gather(across, pieces)
    all_gather(inside, parts)
