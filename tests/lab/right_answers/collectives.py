"""Other right answers to the exercises of 02_collectives: they must pass."""

import torch
import torch.distributed as dist
from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("mended_all_reduce")
def send_and_receive_by_turns(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = tensor.tensor_split(p)
    for step in range(2 * (p - 1)):
        i = (rank + 2 + step) % p
        arrived = torch.empty_like(parts[i]) if step < p - 1 else parts[i]
        sending = dist.isend(parts[(i - 1) % p], (rank - 1) % p)
        dist.recv(arrived, (rank + 1) % p)
        sending.wait()
        if step < p - 1:
            parts[i].add_(arrived)


@right("mended_all_reduce")
def each_finishes_the_part_of_its_neighbor(tensor):
    """As Baidu's: the first part that a rank sends is its own."""
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = tensor.tensor_split(p)
    for step in range(p - 1):
        arrived = torch.empty_like(parts[(rank + step + 1) % p])
        works = [dist.isend(parts[(rank + step) % p], (rank - 1) % p), dist.irecv(arrived, (rank + 1) % p)]
        for work in works:
            work.wait()
        parts[(rank + step + 1) % p].add_(arrived)
    for step in range(p - 1):
        works = [dist.isend(parts[(rank + step - 1) % p], (rank - 1) % p)]
        works.append(dist.irecv(parts[(rank + step) % p], (rank + 1) % p))
        for work in works:
            work.wait()


@right("mended_all_reduce")
def one_buffer_for_all_that_arrives(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = tensor.tensor_split(p)
    buffer = torch.empty_like(parts[0])
    for step in range(p - 1):
        mine = parts[(rank + 2 + step) % p]
        arrived = buffer[: len(mine)]
        works = [dist.irecv(arrived, (rank + 1) % p), dist.isend(parts[(rank + 1 + step) % p], (rank - 1) % p)]
        for work in works:
            work.wait()
        torch.add(mine, arrived, out=mine)
    for step in range(p - 1):
        works = [dist.irecv(parts[(rank + 1 + step) % p], (rank + 1) % p)]
        works.append(dist.isend(parts[(rank + step) % p], (rank - 1) % p))
        for work in works:
            work.wait()


@right("all_to_all_uneven")
def by_pairs(tensor, rows):
    """In step k to the rank that is k further."""
    rank, p = dist.get_rank(), dist.get_world_size()
    pieces, found = tensor.split(rows), {}
    found[rank] = pieces[rank]
    for k in range(1, p):
        to, source = (rank + k) % p, (rank - k) % p
        count = torch.empty(1, dtype=torch.int64)
        for work in [dist.isend(torch.tensor([rows[to]]), to), dist.irecv(count, source)]:
            work.wait()
        found[source] = tensor.new_empty(int(count), *tensor.shape[1:])
        for work in [dist.isend(pieces[to], to), dist.irecv(found[source], source)]:
            work.wait()
    return torch.cat([found[source] for source in range(p)])


@right("all_to_all_uneven")
def nothing_for_empty_pieces(tensor, rows):
    rank, p = dist.get_rank(), dist.get_world_size()
    others = [other for other in range(p) if other != rank]
    counts = torch.tensor(rows)
    works = [dist.isend(torch.tensor(rows[other]), other) for other in others]
    works += [dist.irecv(counts[other], other) for other in others]
    for work in works:
        work.wait()
    counts = counts.tolist()
    result = tensor.new_empty(sum(counts), *tensor.shape[1:])
    going, coming = tensor.split(rows), result.split(counts)
    coming[rank][:] = going[rank]
    works = [dist.isend(going[other], other) for other in others if rows[other]]
    works += [dist.irecv(coming[other], other) for other in others if counts[other]]
    for work in works:
        work.wait()
    return result


@right("all_to_all_uneven")
def put_together_at_the_end(tensor, rows):
    rank, p = dist.get_rank(), dist.get_world_size()
    pieces, counts = tensor.split(rows), [torch.tensor([n]) for n in rows]
    incoming = [torch.zeros(1, dtype=torch.int64) for _ in rows]
    works = []
    for other in set(range(p)) - {rank}:
        works += [dist.irecv(incoming[other], other), dist.isend(counts[other], other)]
    for work in works:
        work.wait()
    arrived = [torch.empty(int(n), *tensor.shape[1:], dtype=tensor.dtype) for n in incoming]
    arrived[rank], works = pieces[rank], []
    for other in set(range(p)) - {rank}:
        works += [dist.irecv(arrived[other], other), dist.isend(pieces[other], other)]
    for work in works:
        work.wait()
    return torch.cat(arrived)


@right("left_reduce_scatter")
def left_started_and_waited_for(tensor, shift):
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = tensor.tensor_split(p)
    for number in range(rank + shift + 1, rank + shift + p):
        arrived = torch.zeros_like(parts[(number + 1) % p])
        sending = dist.isend(parts[number % p].contiguous(), (rank - 1) % p)
        dist.irecv(arrived, (rank + 1) % p).wait()
        sending.wait()
        parts[(number + 1) % p].add_(arrived)
    return parts[(rank + shift) % p].clone()


@right("left_reduce_scatter")
def turned_about_first(tensor, shift):
    """The parts in such an order that rank r returns the one in place r, and ranks counted backwards."""
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = tensor.tensor_split(p)
    mirrored = [parts[(shift - place) % p] for place in range(p)]
    me = -rank % p  # the left neighbor is the next one
    for step in range(p - 1):
        outgoing, mine = mirrored[(me - 1 - step) % p], mirrored[(me - 2 - step) % p]
        arrived = torch.empty_like(mine)
        both = [dist.P2POp(dist.irecv, arrived, (rank + 1) % p), dist.P2POp(dist.isend, outgoing, (rank - 1) % p)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        mine += arrived
    return mirrored[me]


@right("left_reduce_scatter")
def what_travels_left_is_a_new_tensor(tensor, shift):
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = torch.tensor_split(tensor, p)
    travelling = parts[(rank + shift + 1) % p]
    for step in range(2, p + 1):
        mine = parts[(rank + shift + step) % p]
        arrived = torch.empty_like(mine)
        works = [dist.isend(travelling, (rank - 1) % p), dist.irecv(arrived, (rank + 1) % p)]
        for work in works:
            work.wait()
        travelling = arrived.add_(mine)
    return travelling


@right("broadcast_in_parts")
def all_parts_dealt_at_once(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = tensor.tensor_split(p)
    if rank == src:
        works = [dist.isend(parts[other], other) for other in range(p) if other != src]
    else:
        works = [dist.irecv(parts[rank], src)]
    for work in works:
        work.wait()
    for step in range(p - 1):
        works = [dist.isend(parts[(rank - step) % p], (rank + 1) % p)] if (rank + 1) % p != src else []
        if rank != src:
            dist.recv(parts[(rank - step - 1) % p], (rank - 1) % p)
        for work in works:
            work.wait()


@right("broadcast_in_parts")
def dealt_in_the_order_of_the_ring(tensor, src):
    """The right neighbor of the source first."""
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = torch.tensor_split(tensor, p)
    for distance in range(1, p):
        other = (src + distance) % p
        if rank == src:
            dist.isend(parts[other], other).wait()
        elif rank == other:
            dist.irecv(parts[rank], src).wait()
    leaves = rank
    for _ in range(p - 1):
        arrives, works = (leaves - 1) % p, []
        if rank != src:
            works.append(dist.irecv(parts[arrives], (rank - 1) % p))
        if rank != (src - 1) % p:
            works.append(dist.isend(parts[leaves], (rank + 1) % p))
        for work in works:
            work.wait()
        leaves = arrives


@right("broadcast_in_parts")
def with_functions_for_both_halves(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    bounds = [len(part) for part in tensor.tensor_split(p)]
    parts = tensor.split(bounds)

    def scatter():
        for other, part in enumerate(parts):
            if src == rank != other:
                dist.send(part, other)
            if src != rank == other:
                dist.recv(part, src)

    def all_gather():
        for number in range(rank, rank - p + 1, -1):
            both = [
                dist.P2POp(dist.irecv, parts[(number - 1) % p], (rank - 1) % p),
                dist.P2POp(dist.isend, parts[number % p], (rank + 1) % p),
            ]
            both = both[rank == src :][: 1 if (rank + 1) % p == src else 2]
            for work in dist.batch_isend_irecv(both):
                work.wait()

    scatter()
    all_gather()


@right("mean_of_all")
def a_sum_and_a_count_apart(x, shared):
    count = torch.tensor(float(len(x)), dtype=x.dtype)
    dist.all_reduce(count)

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            total = x.clone()
            dist.all_reduce(total)
            return total

        @staticmethod
        def backward(ctx, gradient):
            total = gradient.clone()
            if not shared:
                dist.all_reduce(total)
            return total

    return Sum.apply(x.sum(0)) / count


@right("gather_columns")
def one_row_of_columns(x, shared):
    """Gathers transposed rows, which lie one after another."""
    rank, p = dist.get_rank(), dist.get_world_size()

    class Rows(torch.autograd.Function):
        @staticmethod
        def forward(ctx, rows):
            everything = rows.new_empty(p * len(rows), rows.shape[1])
            dist.all_gather_single(everything, rows.contiguous())
            return everything

        @staticmethod
        def backward(ctx, gradient):
            if shared:
                return gradient.chunk(p)[rank]
            mine = torch.empty_like(gradient.chunk(p)[rank])
            dist.reduce_scatter_single(mine, gradient.contiguous())
            return mine

    return Rows.apply(x.t()).t()
