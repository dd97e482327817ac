"""Wrong answers to the exercises of 01_ranks_and_groups: each with the property that rejects it, and its words."""

import torch
import torch.distributed as dist
from lab.registered import collection
from torch.distributed.device_mesh import init_device_mesh

WRONG_ANSWERS, wrong = collection()
SEEN = {}

# place


@wrong("place", "runs", "IndexError")
def runs_out_of_nodes(rank, devices_of_node):
    node = 0
    while rank >= 0:
        rank -= devices_of_node[node]
        node += 1
    return node - 1, rank + devices_of_node[node]


# mesh_sums


def groups(lists):
    mine = None
    for ranks in lists:
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            mine = group
    return mine


def lists_of(shape):
    """For each axis, the ranks of each group along it."""
    grid = torch.arange(dist.get_world_size()).view(shape)
    return [grid.transpose(axis, -1).reshape(-1, length).tolist() for axis, length in enumerate(shape)]


def summed(x, group):
    total = x.clone()
    dist.all_reduce(total, group=group)
    return total


@wrong("mesh_sums", "communication", "results do not follow")
def zeros_are_sent(x, shape):
    """What others have is read in a global."""
    SEEN[dist.get_rank()] = x.clone()
    sums = []
    for lists in lists_of(shape):
        group = groups(lists)
        summed(torch.zeros_like(x), group)
        sums.append(sum(SEEN[rank] for rank in dist.get_process_group_ranks(group)))
    dist.barrier()
    return sums


@wrong("mesh_sums", "own work", "torch.distributed.device_mesh")
def librarys_own(x, shape):
    mesh = init_device_mesh("cpu", tuple(shape))
    return [summed(x, mesh.get_group(axis)) for axis in range(len(shape))]


@wrong("mesh_sums", "runs", "no new tensor")
def of_one_rank_it_is_x(x, shape):
    grid, sums = torch.arange(dist.get_world_size()).view(shape), []
    for axis, length in enumerate(shape):
        for ranks in grid.movedim(axis, -1).reshape(-1, length).tolist():
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                sums.append(x if length == 1 else x.clone())
                dist.all_reduce(sums[-1], group=group)
    return sums


@wrong("mesh_sums", "runs", "calls a collective of a group it is not in")
def all_ranks_call_in_all_groups(x, shape):
    sums = []
    for lists in lists_of(shape):
        total = x.clone()
        for ranks in lists:
            dist.all_reduce(total, group=dist.new_group(ranks))
        sums.append(total)
    return sums


@wrong("mesh_sums", "values", "the sums of several axes are one tensor")
def one_buffer_for_all_axes(x, shape):
    total, sums = x.clone(), []
    for lists in lists_of(shape):
        dist.all_reduce(total, group=groups(lists))
        sums.append(total)
    return sums


# mended_step


def neighbors():
    rank, p = dist.get_rank(), dist.get_world_size()
    return p, (rank + 1) % p, (rank - 1) % p


def passed_on(numbers, wait=True):
    p, right, left = neighbors()
    arrived = numbers.clone()
    if p > 1:
        sent = dist.isend(numbers, right)
        dist.recv(arrived, left)
        if wait:
            sent.wait()
    return arrived


@wrong("mended_step", "waits", "1 message")
def does_not_wait(numbers, loss):
    arrived = passed_on(numbers, wait=False)
    dist.all_reduce(loss)
    return arrived, loss / dist.get_world_size()


@wrong("mended_step", "bytes", "you call all_gather, where all_reduce is enough. ")
def gathers(numbers, loss):
    p, _, left = neighbors()
    everybody = [torch.empty_like(numbers) for _ in range(p)]
    dist.all_gather(everybody, numbers)
    dist.all_reduce(loss)
    return everybody[left], loss / p


@wrong("mended_step", "time", "1.77 times as long")
def one_after_the_other(numbers, loss):
    p, right, _ = neighbors()
    rank, arrived = dist.get_rank(), numbers.clone()
    for sender in range(p if p > 1 else 0):
        if rank == sender:
            dist.send(numbers, right)
        if rank == (sender + 1) % p:
            dist.recv(arrived, sender)
    dist.all_reduce(loss)
    return arrived, loss / p


@wrong("mended_step", "communication", "results do not follow")
def knows_its_neighbor(numbers, loss):
    passed_on(numbers)
    dist.all_reduce(loss)
    rank, p = dist.get_rank(), dist.get_world_size()
    return numbers + 1000 * ((rank - 1) % p - rank), loss / p


@wrong("place", "values", "devices_of_node[1] has changed")
def eats_the_list(rank, devices_of_node):
    node = 0
    while rank >= devices_of_node[0]:
        rank -= devices_of_node.pop(0)
        node += 1
    return node, rank


@wrong("place", "values", "rank 3 on nodes of 4, 2, 3 devices")
def nodes_of_the_mean_size(rank, devices_of_node):
    size = sum(devices_of_node) // len(devices_of_node)
    return rank // size, rank % size


def step_said_by(say, numbers, loss):
    rank, p = dist.get_rank(), dist.get_world_size()
    arrived = numbers.clone()
    if p > 1:
        coming = dist.irecv(arrived, (rank - 1) % p)
        dist.send(numbers, (rank + 1) % p)
        coming.wait()
    dist.all_reduce(loss)
    say(rank, loss, loss / p)
    return arrived, loss / p


@wrong("mended_step", "printed", "0.75")
def prints_nothing(numbers, loss):
    return step_said_by(lambda rank, total, mean: None, numbers, loss)
