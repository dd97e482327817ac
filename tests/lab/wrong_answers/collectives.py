"""Wrong answers to the exercises of 02_collectives: each with the property that rejects it, and what it is told."""

import importlib

import torch
import torch.distributed as dist
from lab.registered import collection

from tinydist.collectives import ring

WRONG_ANSWERS, wrong = collection()


def neighbors():
    rank, p = dist.get_rank(), dist.get_world_size()
    return rank, p, (rank + 1) % p, (rank - 1) % p


def exchange(outgoing, right, arriving, left):
    both = [dist.P2POp(dist.isend, outgoing, right), dist.P2POp(dist.irecv, arriving, left)]
    for work in dist.batch_isend_irecv(both):
        work.wait()


def reduce_scatter(tensor, hops=None):
    """A right one, in place: rank r gets part r."""
    rank, p, right, left = neighbors()
    parts = tensor.tensor_split(p)
    for step in range(p - 1 if hops is None else min(hops, p - 1)):
        mine = parts[(rank - 2 - step) % p]
        arrived = torch.empty_like(mine)
        exchange(parts[(rank - 1 - step) % p], right, arrived, left)
        mine += arrived
    return parts


def all_gather(parts):
    """A right one, in place."""
    rank, p, right, left = neighbors()
    for step in range(p - 1):
        exchange(parts[(rank - step) % p], right, parts[(rank - 1 - step) % p], left)


# left_reduce_scatter


def left_ring(tensor, first, returned, to_the_left=True, hops=None, add=torch.Tensor.add_):
    """Parts move on by one rank in each step, that of this number first; one is returned."""
    _rank, p, right, left = neighbors()
    sign = 1 if to_the_left else -1
    parts = tensor.tensor_split(p)
    for step in range(p - 1 if hops is None else min(hops, p - 1)):
        grows = parts[(first + sign * (step + 1)) % p]
        arrived = torch.empty_like(grows)
        leaves = parts[(first + sign * step) % p]
        exchange(leaves, left if to_the_left else right, arrived, right if to_the_left else left)
        add(grows, arrived)
    return parts[returned % p]


@wrong("left_reduce_scatter", "values", "on rank 0 the result is nothing (None), where a tensor of shape [3] is right")
def left_does_nothing(tensor, shift):
    pass


@wrong("left_reduce_scatter", "values", "on rank 0 the result has shape [15], where [3] is right")
def left_returns_its_input(tensor, shift):
    return tensor


@wrong("left_reduce_scatter", "values", "rank 0 returns its own numbers: nothing was added")
def returns_its_own_part(tensor, shift):
    p = dist.get_world_size()
    return tensor.tensor_split(p)[(dist.get_rank() + shift) % p]


@wrong("left_reduce_scatter", "own work", "torch.distributed.all_reduce is not allowed here; build it yourself")
def all_reduces_and_cuts(tensor, shift):
    dist.all_reduce(tensor)
    p = dist.get_world_size()
    return tensor.tensor_split(p)[(dist.get_rank() + shift) % p]


@wrong("left_reduce_scatter", "own work", "you call tinydist.collectives, where this is solved")
def the_librarys_ring_and_a_cut(tensor, shift):
    ring.all_reduce(tensor)
    p = dist.get_world_size()
    return tensor.tensor_split(p)[(dist.get_rank() + shift) % p]


@wrong("left_reduce_scatter", "values", "rank 0 returns part 0 of the sum, where part 3 is asked for")
def the_notebooks_ring(tensor, shift):
    rank = dist.get_rank()
    return left_ring(tensor, rank - 1, rank, to_the_left=False)


@wrong("left_reduce_scatter", "values", "These are the indices of a ring that turns to the right")
def the_notebooks_indices(tensor, shift):
    rank, p, right, left = neighbors()
    parts = tensor.tensor_split(p)
    for step in range(p - 1):
        grows = parts[(rank - 2 + shift - step) % p]
        arrived = torch.empty_like(grows)
        exchange(parts[(rank - 1 + shift - step) % p], left, arrived, right)
        grows += arrived
    return parts[(rank + shift) % p]


@wrong("left_reduce_scatter", "messages", "Parts go to the right, and the task asks for the left")
def turns_to_the_right(tensor, shift):
    rank = dist.get_rank()
    return left_ring(tensor, rank - 1 + shift, rank + shift, to_the_left=False)


@wrong("left_reduce_scatter", "values", "so the shift also belongs into the index of the first part")
def shifts_only_what_it_returns(tensor, shift):
    rank = dist.get_rank()
    return left_ring(tensor, rank + 1, rank + shift)


@wrong("left_reduce_scatter", "values", "The parts go round as they should, and another one is returned")
def returns_part_r(tensor, shift):
    rank = dist.get_rank()
    return left_ring(tensor, rank + 1 + shift, rank)


@wrong("left_reduce_scatter", "values", "Rank r returns part r + shift, and you return part r - shift")
def shifts_the_other_way(tensor, shift):
    rank = dist.get_rank()
    return left_ring(tensor, rank + 1 - shift, rank - shift)


@wrong("left_reduce_scatter", "values", "or starts on the rank that is to return it")
def begins_with_its_own(tensor, shift):
    rank = dist.get_rank()
    return left_ring(tensor, rank + shift, rank + shift)


@wrong("left_reduce_scatter", "values", "What arrives is not added to your own numbers")
def adds_nothing(tensor, shift):
    rank = dist.get_rank()
    return left_ring(tensor, rank + 1 + shift, rank + shift, add=torch.Tensor.copy_)


@wrong("left_reduce_scatter", "values", "The part that you return lacks its last hop")
def left_without_the_last_hop(tensor, shift):
    rank = dist.get_rank()
    return left_ring(tensor, rank + 1 + shift, rank + shift, hops=max(1, dist.get_world_size() - 2))


@wrong("left_reduce_scatter", "values", "This is the mean, and the sum is asked for")
def the_mean_of_a_part(tensor, shift):
    rank = dist.get_rank()
    return left_ring(tensor, rank + 1 + shift, rank + shift) / dist.get_world_size()


@wrong("left_reduce_scatter", "bytes", "every message carries the whole tensor")
def whole_tensors_to_the_left(tensor, shift):
    rank, p, right, left = neighbors()
    total, outgoing = tensor.clone(), tensor
    for _ in range(p - 1):
        arrived = torch.empty_like(tensor)
        exchange(outgoing, left, arrived, right)
        total += arrived
        outgoing = arrived
    return total.tensor_split(p)[(rank + shift) % p]


@wrong("left_reduce_scatter", "messages", "where rank 4 is right")
def straight_to_the_owner(tensor, shift):
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = tensor.tensor_split(p)
    mine = parts[(rank + shift) % p]
    for distance in range(1, p):
        arrived = torch.empty_like(mine)
        exchange(parts[(rank + distance + shift) % p], (rank + distance) % p, arrived, (rank - distance) % p)
        mine += arrived
    return mine


@wrong("left_reduce_scatter", "memory", "two parts besides the tensor")
def left_on_a_copy(tensor, shift):
    rank = dist.get_rank()
    return left_ring(tensor.clone(), rank + 1 + shift, rank + shift)


@wrong("left_reduce_scatter", "time", "In each step all ranks should send and receive at the same time")
def left_one_after_another(tensor, shift):
    rank, p, right, left = neighbors()
    parts = tensor.tensor_split(p)
    for step in range(p - 1):
        leaves, grows = parts[(rank + 1 + shift + step) % p], parts[(rank + 2 + shift + step) % p]
        arrived = torch.empty_like(grows)
        if rank == 0:
            dist.send(leaves, left)
            dist.recv(arrived, right)
        else:
            dist.recv(arrived, right)
            dist.send(leaves, left)
        grows += arrived
    return parts[(rank + shift) % p]


@wrong("left_reduce_scatter", "values", "rank 0 does not wait for 8 messages: call wait()")
def left_without_waiting(tensor, shift):
    rank, p, right, left = neighbors()
    parts = tensor.tensor_split(p)
    for step in range(p - 1):
        leaves, grows = parts[(rank + 1 + shift + step) % p], parts[(rank + 2 + shift + step) % p]
        arrived = torch.zeros_like(grows)
        dist.batch_isend_irecv([dist.P2POp(dist.isend, leaves, left), dist.P2POp(dist.irecv, arrived, right)])
        grows += arrived
    return parts[(rank + shift) % p]


# broadcast_in_parts


def scatter_parts(tensor, src):
    """A right one, in place."""
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = tensor.tensor_split(p)
    for other in range(p):
        if src == rank != other:
            dist.send(parts[other], other)
        if src != rank == other:
            dist.recv(parts[other], src)
    return parts


def pass_on(parts, src, steps=None, first=0, way=1):
    """A right one: nothing comes to the source. Or with fewer steps, another first part, the other way round."""
    rank, p = dist.get_rank(), dist.get_world_size()
    to, of = (rank + way) % p, (rank - way) % p
    for step in range(p - 1 if steps is None else steps):
        leaves, arrives = parts[(rank - first - way * step) % p], parts[(rank - first - way * (step + 1)) % p]
        sending = dist.isend(leaves, to) if to != src else None
        if rank != src:
            dist.recv(arrives, of)
        if sending:
            sending.wait()


@wrong("broadcast_in_parts", "bytes", "Rank src has all parts, and its left neighbor sends them to it once more")
def the_all_gather_of_the_notebook(tensor, src):
    all_gather(scatter_parts(tensor, src))


@wrong("broadcast_in_parts", "values", "After the scatter rank r has part r: with this the ring begins")
def the_ring_of_a_reduce_scatter(tensor, src):
    pass_on(scatter_parts(tensor, src), src, first=1)


@wrong("broadcast_in_parts", "runs", "Rank src has nothing to receive on the ring, and yet its right neighbor waits")
def the_source_leaves_after_the_scatter(tensor, src):
    parts = scatter_parts(tensor, src)
    if dist.get_rank() != src:
        pass_on(parts, src)


@wrong("broadcast_in_parts", "values", "rank 0 still has its own numbers: nothing has reached it from rank 1")
def broadcasts_nothing(tensor, src):
    pass


@wrong("broadcast_in_parts", "values", "rank 0 still has its own numbers")
def returns_the_tensor(tensor, src):
    return tensor


@wrong("broadcast_in_parts", "own work", "torch.distributed.broadcast is not allowed here; build it yourself")
def torchs_broadcast(tensor, src):
    dist.broadcast(tensor, src)


@wrong(
    "broadcast_in_parts", "own work", "torch.distributed.all_gather and torch.distributed.scatter are not allowed here"
)
def two_calls_of_torchs(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    pieces = [piece.clone() for piece in padded(tensor, p).chunk(p)]
    mine = torch.empty_like(pieces[0])
    dist.scatter(mine, pieces if rank == src else None, src)
    dist.all_gather(pieces, mine)
    tensor.copy_(torch.cat(pieces)[: tensor.numel()].view_as(tensor))


@wrong("broadcast_in_parts", "own work", "you call tinydist.collectives, where this is solved")
def the_librarys_broadcast(tensor, src):
    importlib.import_module("tinydist.collectives.tree").broadcast(tensor, src)


@wrong("broadcast_in_parts", "messages", "A star: rank src sends the whole tensor to each other rank.")
def whole_tensors_from_src(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    for other in range(p):
        if src == rank != other:
            dist.send(tensor, other)
        if src != rank == other:
            dist.recv(tensor, src)


@wrong("broadcast_in_parts", "messages", "rank 2 sends to rank 0, where rank 3 is right")
def a_tree(tensor, src):
    tree(tensor, src)


@wrong("broadcast_in_parts", "messages", "rank 1 sends 0 messages to rank 0, where 1 is right")
def a_chain_of_whole_tensors(tensor, src):
    rank, _p, right, left = neighbors()
    if rank != src:
        dist.recv(tensor, left)
    if right != src:
        dist.send(tensor, right)


@wrong("broadcast_in_parts", "values", "The all-gather is missing: each rank has one part")
def scatters_only(tensor, src):
    scatter_parts(tensor, src)


@wrong("broadcast_in_parts", "values", "rank 0")
def gathers_only(tensor, src):
    all_gather(tensor.tensor_split(dist.get_world_size()))


@wrong("broadcast_in_parts", "values", "The last step of the all-gather is missing")
def gathers_one_step_too_few(tensor, src):
    pass_on(scatter_parts(tensor, src), src, steps=dist.get_world_size() - 2)


@wrong("broadcast_in_parts", "values", "What is passed on has not arrived yet")
def passes_on_what_it_lacks(tensor, src):
    rank, p, right, left = neighbors()
    parts = scatter_parts(tensor, src)
    for step in range(p - 1):
        sending = dist.isend(parts[(rank + step) % p], right) if right != src else None
        if rank != src:
            dist.recv(parts[(rank - 1 + step) % p], left)
        if sending:
            sending.wait()


@wrong("broadcast_in_parts", "values", "These are the numbers of rank 0: the source is rank src")
def broadcasts_from_rank_0(tensor, src):
    pass_on(scatter_parts(tensor, 0), 0)


@wrong("broadcast_in_parts", "runs", "A rank cannot send to itself: src has its own part already")
def sends_to_itself(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = tensor.tensor_split(p)
    if rank == src:
        for other in range(p):
            dist.send(parts[other], other)
    else:
        dist.recv(parts[rank], src)
    all_gather(parts)


@wrong("broadcast_in_parts", "values", "Rank r holds part r after the scatter")
def receives_into_another_part(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = tensor.tensor_split(p)
    if rank == src:
        for other in range(p):
            if other != src:
                dist.send(parts[other], other)
    else:
        dist.recv(parts[rank - 1], src)
    pass_on(parts, src)


@wrong("broadcast_in_parts", "values", "returns a new tensor, but the task is to work in place")
def returns_another(tensor, src):
    copy = tensor.clone()
    all_gather(scatter_parts(copy, src))
    return copy


@wrong("broadcast_in_parts", "memory", "receive into its parts")
def through_a_copy(tensor, src):
    copy = tensor.clone()
    pass_on(scatter_parts(copy, src), src)
    tensor.copy_(copy)


@wrong("broadcast_in_parts", "messages", "rank 0 sends to rank 3, and should send to nobody")
def gathers_the_other_way_round(tensor, src):
    pass_on(scatter_parts(tensor, src), src, way=-1)


@wrong("broadcast_in_parts", "time", "On the ring all ranks should send and receive at the same time")
def parts_one_after_another(tensor, src):
    rank, p, right, left = neighbors()
    parts = scatter_parts(tensor, src)
    for step in range(p - 1):
        outgoing, arriving = parts[(rank - step) % p], parts[(rank - 1 - step) % p]
        if rank != src:
            dist.recv(arriving, left)
        if right != src:
            dist.send(outgoing, right)


# all_reduce_many


def summed_row(tensors):
    """A right one: the sum of all, as a row."""
    row = torch.cat([tensor.view(-1) for tensor in tensors])
    all_gather(reduce_scatter(row))
    return row


def back(tensors, row):
    for tensor, piece in zip(tensors, row.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(piece.view_as(tensor))


@wrong("all_reduce_many", "values", "every rank still has its own numbers: nothing was added")
def many_left_alone(tensors):
    pass


@wrong("all_reduce_many", "values", "every rank still has its own numbers")
def returns_the_list(tensors):
    return tensors


@wrong("all_reduce_many", "own work", "torch.distributed.all_reduce is not allowed here; build it yourself")
def many_calls(tensors):
    for tensor in tensors:
        dist.all_reduce(tensor)


@wrong("all_reduce_many", "own work", "you call tinydist.collectives, where this is solved")
def the_librarys_ring_on_the_row(tensors):
    row = torch.cat([tensor.view(-1) for tensor in tensors])
    ring.all_reduce(row)
    back(tensors, row)


@wrong("all_reduce_many", "bytes", "A ring for each tensor")
def a_ring_for_each(tensors):
    for tensor in tensors:
        all_gather(reduce_scatter(tensor.view(-1)))


@wrong("all_reduce_many", "values", "The tensors of the list are unchanged: the sum stands in the row.")
def leaves_the_sum_in_the_row(tensors):
    summed_row(tensors)


@wrong("all_reduce_many", "values", "to give a name another tensor is not enough")
def puts_others_into_the_list(tensors):
    row = summed_row(tensors)
    start = 0
    for i, tensor in enumerate(tensors):
        tensors[i] = row[start : start + tensor.numel()].view_as(tensor)
        start += tensor.numel()


@wrong("all_reduce_many", "values", "The row has its tensors in another order than that in which it is cut")
def back_in_another_order(tensors):
    row = torch.cat([tensor.view(-1) for tensor in tensors[::-1]])
    all_gather(reduce_scatter(row))
    back(tensors, row)


@wrong("all_reduce_many", "runs", "The tensors are of different sizes: cut the row where each ends")
def cuts_equal_pieces(tensors):
    row = summed_row(tensors)
    for tensor, piece in zip(tensors, row.tensor_split(len(tensors)), strict=True):
        tensor.copy_(piece.view_as(tensor))


@wrong("all_reduce_many", "values", "This is the mean, and the sum is asked for")
def many_means(tensors):
    back(tensors, summed_row(tensors) / dist.get_world_size())


@wrong("all_reduce_many", "values", "Only the first tensor is summed")
def only_the_first(tensors):
    all_gather(reduce_scatter(tensors[0].view(-1)))


@wrong("all_reduce_many", "bytes", "nothing needs to be filled up, since parts may differ in size")
def fills_up_the_row(tensors):
    p = dist.get_world_size()
    row = torch.cat([tensor.view(-1) for tensor in tensors])
    row = torch.cat([row, row.new_zeros(-len(row) % p)])
    all_gather(reduce_scatter(row))
    back(tensors, row[: sum(tensor.numel() for tensor in tensors)])


@wrong("all_reduce_many", "bytes", "where 120 are right")
def whole_rows_round(tensors):
    _rank, p, right, left = neighbors()
    outgoing = torch.cat([tensor.view(-1) for tensor in tensors])
    total = outgoing.clone()
    for _ in range(p - 1):
        arrived = torch.empty_like(total)
        exchange(outgoing, right, arrived, left)
        total += arrived
        outgoing = arrived
    back(tensors, total)


@wrong("all_reduce_many", "memory", "all numbers once more, as a row, and two parts of it")
def a_row_and_a_copy(tensors):
    row = torch.cat([tensor.view(-1) for tensor in tensors])
    copy = row.clone()
    all_gather(reduce_scatter(copy))
    back(tensors, copy)


@wrong("all_reduce_many", "runs", "Parts differ in size: what arrives is as large as your own part")
def parts_of_one_size(tensors):
    rank, p, right, left = neighbors()
    row = torch.cat([tensor.view(-1) for tensor in tensors])
    parts, arrived = row.tensor_split(p), torch.empty_like(row.tensor_split(p)[0])
    for step in range(p - 1):
        exchange(parts[(rank - 1 - step) % p], right, arrived, left)
        parts[(rank - 2 - step) % p].add_(arrived)
    all_gather(parts)
    back(tensors, row)


@wrong("all_reduce_many", "time", "In each step all ranks should send and receive at the same time")
def rows_one_after_another(tensors):
    rank, p, right, left = neighbors()
    row = torch.cat([tensor.view(-1) for tensor in tensors])
    parts = reduce_scatter(row)
    for step in range(p - 1):
        outgoing, arriving = parts[(rank - step) % p], parts[(rank - 1 - step) % p]
        if rank:
            dist.recv(arriving, left)
        dist.send(outgoing, right)
        if not rank:
            dist.recv(arriving, left)
    back(tensors, row)


def tree(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    me, distance = (rank - src) % p, 1
    while distance < p:
        if me < distance and me + distance < p:
            dist.send(tensor, (rank + distance) % p)
        elif distance <= me < 2 * distance:
            dist.recv(tensor, (rank - distance) % p)
        distance *= 2


def padded(tensor, p):
    flat = tensor.flatten()
    return torch.cat([flat, flat.new_zeros(p - len(flat) % p)])


# mended_all_reduce


@wrong(
    "mended_all_reduce",
    "runs",
    "All ranks send first, and nobody receives: a send waits for its receive. Start it with isend,",
)
def only_the_bytes_are_mended(tensor):
    rank, p, right, left = neighbors()
    parts = tensor.tensor_split(p)
    for step in range(p - 1):
        i = (rank + 2 + step) % p
        arrived = torch.empty_like(parts[i])
        dist.send(parts[(i - 1) % p], left)
        dist.recv(arrived, right)
        parts[i].add_(arrived)
    for step in range(p - 1):
        i = (rank + 1 + step) % p
        dist.send(parts[(i - 1) % p], left)
        dist.recv(parts[i], right)


@wrong("mended_all_reduce", "bytes", "Of what arrives only part i is used: nothing else needs to be sent")
def only_the_hang_is_mended(tensor):
    rank, p, right, left = neighbors()
    parts = tensor.tensor_split(p)
    arrived = torch.empty_like(tensor)
    for step in range(p - 1):
        i = (rank + 2 + step) % p
        exchange(tensor, left, arrived, right)
        parts[i].add_(arrived.tensor_split(p)[i])
    for step in range(p - 1):
        i = (rank + 1 + step) % p
        exchange(tensor, left, arrived, right)
        parts[i].copy_(arrived.tensor_split(p)[i])


@wrong("mended_all_reduce", "time", "should send and receive at the same time")
def even_ranks_send_first(tensor):
    rank, p, right, left = neighbors()
    parts = tensor.tensor_split(p)

    def pass_on(outgoing, arriving):
        if rank == 0:
            dist.send(outgoing, left)
            dist.recv(arriving, right)
        else:
            dist.recv(arriving, right)
            dist.send(outgoing, left)

    for step in range(p - 1):
        i = (rank + 2 + step) % p
        arrived = torch.empty_like(parts[i])
        pass_on(parts[(i - 1) % p], arrived)
        parts[i].add_(arrived)
    for step in range(p - 1):
        i = (rank + 1 + step) % p
        arrived = torch.empty_like(parts[i])
        pass_on(parts[(i - 1) % p], arrived)
        parts[i].copy_(arrived)


@wrong(
    "mended_all_reduce",
    "memory",
    "rank 0 holds 16,384 bytes besides its arguments, where 8,192 are enough: two parts besides the",
)
def a_buffer_for_the_whole_tensor(tensor):
    rank, p, right, left = neighbors()
    parts = tensor.tensor_split(p)
    arrived = torch.empty_like(tensor)
    for step in range(p - 1):
        i = (rank + 2 + step) % p
        exchange(parts[(i - 1) % p], left, arrived.tensor_split(p)[i], right)
        parts[i].add_(arrived.tensor_split(p)[i])
    for step in range(p - 1):
        i = (rank + 1 + step) % p
        exchange(parts[(i - 1) % p], left, parts[i], right)


@wrong("mended_all_reduce", "own work", "torch.distributed.all_reduce is not allowed here")
def gives_up(tensor):
    dist.all_reduce(tensor)


@wrong("mended_all_reduce", "waits", "rank 0 does not wait for 2 messages")
def sends_without_waiting(tensor):
    rank, p, right, left = neighbors()
    parts = tensor.tensor_split(p)
    for step in range(p - 1):
        i = (rank + 2 + step) % p
        arrived = torch.empty_like(parts[i])
        dist.isend(parts[(i - 1) % p], left)
        dist.recv(arrived, right)
        parts[i].add_(arrived)
    for step in range(p - 1):
        i = (rank + 1 + step) % p
        dist.isend(parts[(i - 1) % p], left)
        dist.recv(parts[i], right)


@wrong("mended_all_reduce", "messages", "The program passes parts to the left, and yours to the right")
def the_notebooks_ring_all_reduce(tensor):
    all_gather(reduce_scatter(tensor))


@wrong("mended_all_reduce", "messages", "rank 0 sends to rank 1, where rank 2 is right")
def gathers_to_the_right(tensor):
    rank, p, right, left = neighbors()
    parts = tensor.tensor_split(p)
    for step in range(p - 1):
        i = (rank + 2 + step) % p
        arrived = torch.empty_like(parts[i])
        exchange(parts[(i - 1) % p], left, arrived, right)
        parts[i].add_(arrived)
    all_gather(parts)


@wrong("mended_all_reduce", "values", "every rank still has its own numbers: nothing was added")
def mends_nothing(tensor):
    pass


@wrong("mended_all_reduce", "values", "rank 0 returns a new tensor, but the task is to work in place")
def returns_the_sum(tensor):
    copy = tensor.clone()
    all_gather(reduce_scatter(copy))
    return copy


@wrong("mended_all_reduce", "own work", "you call tinydist.collectives, where this is solved")
def the_librarys_ring(tensor):
    ring.all_reduce(tensor)


@wrong("mended_all_reduce", "values", "With 2 ranks this is right.")
def right_on_two_ranks(tensor):
    if dist.get_world_size() == 2:
        all_gather(reduce_scatter(tensor))


BOARD = {}


@wrong("mended_all_reduce", "bytes", "nobody sent anything. Ranks of a real cluster share no memory")
def through_a_global(tensor):
    rank, ranks = dist.get_rank(), range(dist.get_world_size())
    store = dist.distributed_c10d._get_default_store()
    BOARD[rank] = tensor.clone()
    store.set(f"rank {rank} is there", "")
    store.wait([f"rank {each} is there" for each in ranks])
    tensor.copy_(sum(BOARD[each] for each in ranks))


@wrong("mended_all_reduce", "bytes", "rank 0 sends 2 times what the others send (96 bytes): this is a star, not a ring")
def a_star(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        for other in range(1, p):
            arrived = torch.empty_like(tensor)
            dist.recv(arrived, other)
            tensor += arrived
        for other in range(1, p):
            dist.send(tensor, other)
    else:
        dist.send(tensor, 0)
        dist.recv(tensor, 0)


@wrong("mended_all_reduce", "values", "are they sent, or added, in a smaller dtype?")
def sums_bfloat16(tensor):
    rank, p, right, left = neighbors()
    parts = tensor.tensor_split(p)
    for step in range(2 * (p - 1)):
        i = (rank + 2 + step) % p
        arrived = torch.empty_like(parts[i], dtype=torch.bfloat16)
        exchange(parts[(i - 1) % p].bfloat16(), left, arrived, right)
        parts[i].copy_(parts[i] + arrived if step < p - 1 else arrived)


@wrong("mended_all_reduce", "runs", "rank 1: returned")
def one_rank_stays_away(tensor):
    if dist.get_rank() != 1:
        all_gather(reduce_scatter(tensor))


@wrong("mended_all_reduce", "runs", "one called sys.exit: rank 0")
def exits(tensor):
    raise SystemExit


@wrong("mended_all_reduce", "runs", "RuntimeError: my own\nrank 1, at ")
def raises_on_one_rank(tensor):
    if dist.get_rank() == 1:
        raise RuntimeError("my own")
    all_gather(reduce_scatter(tensor))


@wrong("mended_all_reduce", "runs", "TypeError")
def takes_other_arguments(tensor, group):
    pass


# all_to_all_uneven


def pairwise(tensor, rows, know=None, order=sorted, own=True):
    """A right one, but for what is asked of it."""
    rank, p = dist.get_rank(), dist.get_world_size()
    pieces = tensor.split(rows)
    found = {rank: pieces[rank]} if own else {}
    for distance in range(1, p):
        to, source = (rank + distance) % p, (rank - distance) % p
        count = torch.tensor([0])
        if know is None:
            exchange(torch.tensor([rows[to]]), to, count, source)
        else:
            count = torch.tensor(know(rows, source))
        found[source] = tensor.new_empty(int(count), *tensor.shape[1:])
        exchange(pieces[to], to, found[source], source)
    return torch.cat([found[source] for source in order(found)] or [tensor[:0]])


@wrong("all_to_all_uneven", "values", "on rank 0 the result is nothing (None), where a tensor of shape [3, 3] is right")
def sends_nothing(tensor, rows):
    pass


@wrong("all_to_all_uneven", "values", "rank 0 returned the rows that it was given: nothing has changed places")
def keeps_its_rows(tensor, rows):
    return tensor


@wrong("all_to_all_uneven", "own work", "torch.distributed.all_to_all is not allowed here")
def all_to_all_single(tensor, rows):
    counts = torch.empty(len(rows), dtype=torch.int64)
    dist.all_to_all_single(counts, torch.tensor(rows))
    result = tensor.new_empty(int(counts.sum()), *tensor.shape[1:])
    dist.all_to_all_single(result, tensor, counts.tolist(), rows)
    return result


@wrong(
    "all_to_all_uneven", "runs", "These are the counts of the rows that go out. How many come in, only the others know."
)
def takes_pieces_to_be_even(tensor, rows):
    return pairwise(tensor, rows, know=lambda rows, source: rows[source])


@wrong("all_to_all_uneven", "values", "the right rows in the wrong order: those of rank 0 come first")
def in_the_order_of_arrival(tensor, rows):
    return pairwise(tensor, rows, order=list)


@wrong("all_to_all_uneven", "values", "that it keeps for itself are missing")
def forgets_its_own(tensor, rows):
    return pairwise(tensor, rows, own=dist.get_world_size() == 1)


@wrong("all_to_all_uneven", "values", "rank 0 returned 0 rows, where 3 are for it: only those that it keeps for itself")
def only_its_own(tensor, rows):
    return tensor.split(rows)[dist.get_rank()]


@wrong(
    "all_to_all_uneven",
    "bytes",
    "rank 0 sends 40 bytes, where 32 are right: each rank sends the rows for others, and one int64",
)
def everything_to_everybody(tensor, rows):
    rank, p = dist.get_rank(), dist.get_world_size()
    found = {rank: tensor.split(rows)[rank]}
    for distance in range(1, p):
        to, source = (rank + distance) % p, (rank - distance) % p
        counts = torch.empty(p, dtype=torch.int64)
        exchange(torch.tensor(rows), to, counts, source)
        whole = tensor.new_empty(int(counts.sum()), *tensor.shape[1:])
        exchange(tensor, to, whole, source)
        found[source] = whole.split(counts.tolist())[rank]
    return torch.cat([found[source] for source in sorted(found)])


@wrong(
    "all_to_all_uneven",
    "bytes",
    "rank 0 sends 40 bytes, where 32 are right: each rank sends the rows for others, and one int64",
)
def all_counts_to_all(tensor, rows):
    rank, p = dist.get_rank(), dist.get_world_size()
    pieces, found = tensor.split(rows), {}
    found[rank] = pieces[rank]
    for distance in range(1, p):
        to, source = (rank + distance) % p, (rank - distance) % p
        counts = torch.empty(p, dtype=torch.int64)
        exchange(torch.tensor(rows), to, counts, source)
        found[source] = tensor.new_empty(int(counts[rank]), *tensor.shape[1:])
        exchange(pieces[to], to, found[source], source)
    return torch.cat([found[source] for source in sorted(found)])


@wrong("all_to_all_uneven", "messages", "rank 0 sends 3 messages to rank 1, where 2 are enough")
def row_by_row(tensor, rows):
    rank, p = dist.get_rank(), dist.get_world_size()
    pieces, found = tensor.split(rows), {}
    found[rank] = pieces[rank]
    for distance in range(1, p):
        to, source = (rank + distance) % p, (rank - distance) % p
        count = torch.empty(1, dtype=torch.int64)
        exchange(torch.tensor([rows[to]]), to, count, source)
        found[source] = tensor.new_empty(int(count), *tensor.shape[1:])
        works = [dist.isend(row, to) for row in pieces[to]] + [dist.irecv(row, source) for row in found[source]]
        for work in works:
            work.wait()
    return torch.cat([found[source] for source in sorted(found)])


@wrong("all_to_all_uneven", "memory", "once more put together")
def three_copies(tensor, rows):
    result = pairwise(tensor, rows)
    copies = [result.clone(), result.clone()]
    return copies[-1]


@wrong("all_to_all_uneven", "runs", "it hangs")
def sends_all_then_receives(tensor, rows):
    rank, p = dist.get_rank(), dist.get_world_size()
    others = [other for other in range(p) if other != rank]
    for other in others:
        dist.send(torch.tensor([rows[other]]), other)
    counts = torch.empty(p, dtype=torch.int64)
    for other in others:
        dist.recv(counts[other : other + 1], other)
    return tensor


@wrong("all_to_all_uneven", "time", "Ranks wait for one another's turn. Post all sends and receives at once")
def pair_after_pair(tensor, rows):
    rank, p = dist.get_rank(), dist.get_world_size()
    pieces, found = tensor.split(rows), {}
    found[rank] = pieces[rank]

    def turn(outgoing, arriving, other):
        first, second = (dist.send, dist.recv) if rank < other else (dist.recv, dist.send)
        first(outgoing if first is dist.send else arriving, other)
        second(arriving if first is dist.send else outgoing, other)

    for other in range(p):
        if other != rank:
            count = torch.empty(1, dtype=torch.int64)
            turn(torch.tensor([rows[other]]), count, other)
            found[other] = tensor.new_empty(int(count), *tensor.shape[1:])
            turn(pieces[other], found[other], other)
    return torch.cat([found[source] for source in sorted(found)])


@wrong("all_to_all_uneven", "values", "on rank 0 the result is nothing (None), where a tensor of shape [3, 3] is right")
def an_empty_batch(tensor, rows):
    rank, p = dist.get_rank(), dist.get_world_size()
    others = [other for other in range(p) if other != rank]
    counts = torch.tensor(rows)
    dist.batch_isend_irecv([dist.P2POp(dist.isend, counts[other : other + 1], other) for other in others])


@wrong("all_to_all_uneven", "values", "rank 0 does not wait for 2 messages: call wait()")
def looks_at_rows_before_they_arrive(tensor, rows):
    rank, p = dist.get_rank(), dist.get_world_size()
    counts = torch.empty(p, dtype=torch.int64)
    counts[rank] = rows[rank]
    for distance in range(1, p):
        to, source = (rank + distance) % p, (rank - distance) % p
        exchange(torch.tensor([rows[to]]), to, counts[source : source + 1], source)
    pieces, found = tensor.split(rows), [tensor.new_empty(int(count), *tensor.shape[1:]) for count in counts]
    found[rank] = pieces[rank]
    for distance in range(1, p):
        dist.isend(pieces[(rank + distance) % p], (rank + distance) % p)
        dist.irecv(found[(rank - distance) % p], (rank - distance) % p)
    return torch.cat(found)


@wrong("all_to_all_uneven", "runs", "Is it read from a tensor that a message fills, before wait()?")
def looks_at_counts_before_they_arrive(tensor, rows):
    rank, p = dist.get_rank(), dist.get_world_size()
    counts = torch.empty(p, dtype=torch.int64)
    counts[rank] = rows[rank]
    for distance in range(1, p):
        to, source = (rank + distance) % p, (rank - distance) % p
        dist.isend(torch.tensor([rows[to]]), to)
        dist.irecv(counts[source : source + 1], source)
    return tensor.new_empty(int(counts.sum()), *tensor.shape[1:])


@wrong(
    "left_reduce_scatter", "runs", "With 3 ranks, shift=1, 5 x 3 numbers each: two ranks do not agree on what passes"
)
def receives_float32(tensor, shift):
    rank, p = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % p, (rank - 1) % p
    parts = tensor.tensor_split(p)
    for step in range(p - 1):
        leaves, grows = parts[(rank + shift + 1 + step) % p], parts[(rank + shift + 2 + step) % p]
        arrived = torch.empty(len(grows))
        both = [dist.P2POp(dist.isend, leaves, left), dist.P2POp(dist.irecv, arrived, right)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        grows += arrived
    return parts[(rank + shift) % p]


@wrong("all_reduce_many", "bytes", "are the numbers sent in a smaller dtype?")
def a_row_of_float32(tensors):
    rank, p = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % p, (rank - 1) % p

    def pass_right(leaves, arrives):
        both = [dist.P2POp(dist.isend, leaves, right), dist.P2POp(dist.irecv, arrives, left)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    row = torch.cat([tensor.flatten().float() for tensor in tensors])
    parts = row.tensor_split(p)
    arrived = torch.empty_like(parts[0])
    for step in range(p - 1):
        grows = parts[(rank - 1 - step) % p]
        pass_right(parts[(rank - step) % p], arrived[: len(grows)])
        grows += arrived[: len(grows)]
    for step in range(p - 1):
        pass_right(parts[(rank + 1 - step) % p], parts[(rank - step) % p])
    for tensor, numbers in zip(tensors, row.split([tensor.numel() for tensor in tensors])):
        tensor.copy_(numbers.view_as(tensor))


@wrong("all_to_all_uneven", "runs", "5 numbers each: two ranks do not agree on what passes")
def arrives_as_float32(tensor, rows):
    rank, p = dist.get_rank(), dist.get_world_size()
    others = [other for other in range(p) if other != rank]
    pieces = tensor.split(rows)
    told = torch.tensor(rows)
    counts = told.clone()
    works = [dist.irecv(counts[other : other + 1], other) for other in others]
    works += [dist.isend(told[other : other + 1], other) for other in others]
    for work in works:
        work.wait()
    arrived = [torch.empty(count, *tensor.shape[1:]) for count in counts.tolist()]
    arrived[rank] = pieces[rank]
    works = [dist.irecv(arrived[other], other) for other in others if len(arrived[other])]
    works += [dist.isend(pieces[other], other) for other in others if len(pieces[other])]
    for work in works:
        work.wait()
    return torch.cat(arrived)


@wrong("all_to_all_uneven", "runs", "With 3 ranks, uneven rows, a number each: IndexError: t")
def rows_have_two_dims(tensor, rows):
    return pairwise(tensor, rows)[:, : tensor.shape[1]]
