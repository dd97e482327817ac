"""Wrong answers to the exercises of 01_ranks_and_groups: each with the property that rejects it, and its words."""

import torch
import torch.distributed as dist
from lab.registered import collection
from torch.distributed.device_mesh import init_device_mesh

WRONG_ANSWERS, wrong = collection()
SEEN = {}

# place


@wrong("place", "values", "one division by the size of the first is right only where all are alike")
def divides(rank, devices_of_node):
    return rank // devices_of_node[0], rank % devices_of_node[0]


@wrong("place", "values", "the number within the node is asked for")
def node_alone(rank, devices_of_node):
    before = 0
    for node, devices in enumerate(devices_of_node):
        before += devices
        if rank < before:
            return node, rank


@wrong("place", "values", "A node of 4 devices has ranks 0 to 3")
def one_too_many(rank, devices_of_node):
    node = 0
    while rank > devices_of_node[node]:
        rank -= devices_of_node[node]
        node += 1
    return node, rank


@wrong("place", "values", "With rank 5 on nodes of 4, 4 devices: the node is 0, where 1 is right")
def always_the_first(rank, devices_of_node):
    return 0, rank


@wrong("place", "values", "2 things are right: the node, the local rank")
def one_number(rank, devices_of_node):
    return rank


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


@wrong("mesh_sums", "heard", "the results do not follow what is sent")
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


@wrong("mesh_sums", "values", "The order of the axes is reversed")
def last_axis_first(x, shape):
    return [summed(x, groups(lists)) for lists in lists_of(shape)[::-1]]


@wrong("mesh_sums", "runs", "Only its members make a group")
def members_alone(x, shape):
    rank = dist.get_rank()
    mine = [next(ranks for ranks in lists if rank in ranks) for lists in lists_of(shape)]
    return [summed(x, dist.new_group(ranks)) for ranks in mine]


@wrong("mesh_sums", "values", "x has changed: it belongs to the caller")
def in_x_itself(x, shape):
    *before, last = lists_of(shape)
    sums = [summed(x, groups(lists)) for lists in before]
    dist.all_reduce(x, group=groups(last))
    return [*sums, x]


@wrong("mesh_sums", "values", "2 of 2 numbers of the sum along axis 0 are wrong")
def nothing(x, shape):
    return [x] * len(shape)


@wrong("mesh_sums", "runs", "it should return a list of as many tensors as the mesh has axes")
def for_two_axes(x, shape):
    """The groups of the chapter's 2 x 4."""
    columns = dist.get_world_size() // shape[0]
    rows = [list(range(row * columns, (row + 1) * columns)) for row in range(shape[0])]
    of_columns = [list(range(column, dist.get_world_size(), columns)) for column in range(columns)]
    return summed(x, groups(of_columns)), summed(x, groups(rows))


@wrong("mesh_sums", "values", "These groups are runs of neighboring ranks")
def neighbors_along_every_axis(x, shape):
    p = dist.get_world_size()
    lists = [[list(range(first, first + length)) for first in range(0, p, length)] for length in shape]
    return [summed(x, groups(each)) for each in lists]


@wrong("mesh_sums", "own work", "make the groups yourself, with dist.new_group")
def librarys_own(x, shape):
    mesh = init_device_mesh("cpu", tuple(shape))
    return [summed(x, mesh.get_group(axis)) for axis in range(len(shape))]


@wrong("mesh_sums", "bytes", "one all-reduce in each of the rank's groups")
def gathers_everything(x, shape):
    everybody = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, x)
    sums = []
    for lists in lists_of(shape):
        groups(lists)
        sums.append(sum(everybody[other] for ranks in lists if dist.get_rank() in ranks for other in ranks))
    return sums


@wrong("mesh_sums", "runs", "Only its members make a group")
def stops_at_groups_of_others(x, shape):
    if dist.get_rank() == 0:
        dist.new_group([0])
    return [summed(x, groups(lists)) for lists in lists_of(shape)]


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


@wrong("mended_step", "runs", "Every rank stands in send, and nobody receives")
def first_hang(numbers, loss):
    p, right, left = neighbors()
    arrived = torch.empty_like(numbers)
    dist.send(numbers, right)
    dist.recv(arrived, left)
    dist.all_reduce(loss)
    return arrived, loss / p


@wrong("mended_step", "runs", "Rank 0 calls an all_reduce that the others do not call")
def second_hang(numbers, loss):
    arrived = passed_on(numbers)
    if dist.get_rank() == 0:
        dist.all_reduce(loss)
        loss /= dist.get_world_size()
    return arrived, loss


@wrong("mended_step", "values", "Each rank returns its own loss")
def no_collective(numbers, loss):
    return passed_on(numbers), loss


@wrong("mended_step", "values", "on rank 0 the mean loss is 1.875, where 1.25 is right")
def halves(numbers, loss):
    arrived = passed_on(numbers)
    dist.all_reduce(loss)
    return arrived, loss / 2


@wrong("mended_step", "values", "1000 of 1000 numbers of the neighbor's numbers are wrong")
def nobody_sends(numbers, loss):
    dist.all_reduce(loss)
    return numbers, loss / dist.get_world_size()


@wrong("mended_step", "waits", "rank 0 does not wait for 1 message")
def does_not_wait(numbers, loss):
    arrived = passed_on(numbers, wait=False)
    dist.all_reduce(loss)
    return arrived, loss / dist.get_world_size()


@wrong("mended_step", "bytes", "rank 0 sends 8,005 bytes, where 4,005 are right")
def gathers(numbers, loss):
    p, _, left = neighbors()
    everybody = [torch.empty_like(numbers) for _ in range(p)]
    dist.all_gather(everybody, numbers)
    dist.all_reduce(loss)
    return everybody[left], loss / p


@wrong("mended_step", "time", "The messages go one after the other")
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


@wrong("mended_step", "heard", "the results do not follow what is sent")
def knows_its_neighbor(numbers, loss):
    passed_on(numbers)
    dist.all_reduce(loss)
    rank, p = dist.get_rank(), dist.get_world_size()
    return numbers + 1000 * ((rank - 1) % p - rank), loss / p


# first_difference


@wrong("first_difference", "values", "compare with what most ranks call, and not with rank 0")
def compares_with_rank_0(records):
    for number in range(max(map(len, records))):
        for rank, record in enumerate(records):
            if record[number : number + 1] != records[0][number : number + 1]:
                return number + 1, rank


@wrong("first_difference", "values", "Calls count from 1")
def counts_from_0(records):
    for number in range(max(map(len, records))):
        calls = [record[number] if number < len(record) else None for record in records]
        for rank, call in enumerate(calls):
            if calls.count(call) == 1:
                return number, rank


@wrong("first_difference", "values", "it returned nothing (None), where 2 things are right")
def ends_with_the_shortest(records):
    for number, calls in enumerate(zip(*records), start=1):
        for rank, call in enumerate(calls):
            if calls.count(call) == 1:
                return number, rank


@wrong("first_difference", "values", "After the first one all later calls are shifted")
def by_length_alone(records):
    lengths = [len(record) for record in records]
    odd = next((rank for rank, length in enumerate(lengths) if lengths.count(length) == 1), 0)
    return min(lengths) + 1, odd


@wrong("first_difference", "runs", "IndexError")
def no_such_call(records):
    for number in range(max(map(len, records))):
        calls = [record[number] for record in records]
        for rank, call in enumerate(calls):
            if calls.count(call) == 1:
                return number + 1, rank


@wrong("place", "values", "devices_of_node[1] has changed: it belongs to the caller")
def eats_the_list(rank, devices_of_node):
    node = 0
    while rank >= devices_of_node[0]:
        rank -= devices_of_node.pop(0)
        node += 1
    return node, rank


@wrong("place", "values", "With rank 3 on nodes of 4, 2, 3 devices: the node is 1, where 0 is right")
def nodes_of_the_mean_size(rank, devices_of_node):
    size = sum(devices_of_node) // len(devices_of_node)
    return rank // size, rank % size


@wrong("first_difference", "values", "With records in which rank 1 stops in a loop of the same call: ")
def the_last_call_again(records):
    longest = max(len(record) for record in records)
    for number in range(longest):
        calls = [record[number] if number < len(record) else record[-1] for record in records]
        for rank, call in enumerate(calls):
            if calls.count(call) == 1:
                return number + 1, rank


@wrong("first_difference", "values", "the first step: the number of the call is 3, where 4 is right")
def up_to_the_shortest(records):
    for number, calls in enumerate(zip(*records), start=1):
        for rank, call in enumerate(calls):
            if calls.count(call) == 1:
                return number, rank
    shortest = min(records, key=len)
    return len(shortest), records.index(shortest)


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


@wrong("mended_step", "printed", "rank 0 does not print the mean loss, 0.75")
def prints_nothing(numbers, loss):
    return step_said_by(lambda rank, total, mean: None, numbers, loss)


@wrong("mended_step", "printed", "rank 0 does not print the mean loss, 0.75")
def prints_the_sum(numbers, loss):
    return step_said_by(lambda rank, total, mean: rank or print("mean loss", total.item()), numbers, loss)


@wrong("mended_step", "printed", "ranks 0-1 print the mean loss: once is enough, by rank 0")
def all_print(numbers, loss):
    return step_said_by(lambda rank, total, mean: print("mean loss", mean.item()), numbers, loss)


@wrong("mesh_sums", "waits", "rank 0 does not wait for 3 collectives")
def sums_that_are_not_waited_for(x, shape):
    sums = []
    for lists in lists_of(shape):
        sums.append(x.clone())
        dist.all_reduce(sums[-1], group=groups(lists), async_op=True)
    return sums
