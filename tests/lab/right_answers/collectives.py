"""Other right answers to the exercises of 02_collectives: they must pass."""

import torch
import torch.distributed as dist
from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("tree_broadcast")
def all_sends_at_once(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    me, distance, sending = (rank - src) % p, 1, []
    while distance < p:
        if me < distance and me + distance < p:
            sending.append(dist.isend(tensor, (rank + distance) % p))
        elif distance <= me < 2 * distance:
            dist.recv(tensor, (rank - distance) % p)
        distance *= 2
    for work in sending:
        work.wait()


@right("tree_broadcast")
def far_ranks_first(tensor, src):
    """The other binomial tree: distances halve."""
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - src) % p
    distance = 1 << max(0, (p - 1).bit_length() - 1)
    while distance and p > 1:
        if me % (2 * distance) == 0 and me + distance < p:
            dist.send(tensor, (rank + distance) % p)
        elif me % (2 * distance) == distance:
            dist.recv(tensor, (rank - distance) % p)
        distance //= 2


@right("tree_broadcast")
def each_half_for_itself(tensor, src):
    """By recursion: the first place of a range hands over the second half of it."""
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - src) % p

    def serve(first, behind, step):
        if step == 0:
            return
        middle = first + step
        if middle < behind:
            if me == first:
                dist.send(tensor, (src + middle) % p)
            if me == middle:
                dist.recv(tensor, (src + first) % p)
        if me < middle:
            serve(first, min(middle, behind), step // 2)
        else:
            serve(middle, behind, step // 2)

    serve(0, p, (1 << (p - 1).bit_length()) // 2)


@right("ring_reduce_scatter")
def started_and_waited_for(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = tensor.tensor_split(p)
    for step in range(p - 1):
        arrived = torch.zeros_like(parts[(rank - 2 - step) % p])
        sending = dist.isend(parts[(rank - 1 - step) % p].contiguous(), (rank + 1) % p)
        dist.irecv(arrived, (rank - 1) % p).wait()
        sending.wait()
        parts[(rank - 2 - step) % p].add_(arrived)
    return parts[rank].clone()


@right("ring_reduce_scatter")
def what_travels_is_a_new_tensor(tensor):
    """The part that arrived is what is sent next; the tensor stays as it is."""
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = torch.tensor_split(tensor, p)
    travelling = parts[(rank - 1) % p]
    for step in range(p - 1):
        mine = parts[(rank - 2 - step) % p]
        arrived = torch.empty_like(mine)
        both = [
            dist.P2POp(dist.isend, travelling, (rank + 1) % p),
            dist.P2POp(dist.irecv, arrived, (rank - 1) % p),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        travelling = arrived.add_(mine)
    return travelling
