"""Other right answers to the exercises of 03b_collectives_on_clusters: they must pass."""

from itertools import pairwise

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


def ring_sum(ranks, parts, reduces=True):
    """One ring for both halves: what arrives is added, or kept. Sends are started, and waited for after."""
    me, size = list(ranks).index(dist.get_rank()), len(ranks)
    for step in range(size - 1):
        i = (me - 1 - reduces - step) % size
        arrived = torch.empty_like(parts[i])
        sending = dist.isend(parts[(i + 1) % size], ranks[(me + 1) % size])
        dist.recv(arrived, ranks[(me - 1) % size])
        sending.wait()
        parts[i].copy_(parts[i] + arrived if reduces else arrived)


@right("mended_hierarchy")
def lists_of_ranks(tensor, per_node):
    rank, p = dist.get_rank(), dist.get_world_size()
    mates = [other for other in range(p) if other // per_node == rank // per_node]
    twins = [other for other in range(p) if other % per_node == rank % per_node]
    parts = torch.tensor_split(tensor, per_node)
    ring_sum(mates, parts)
    pieces = parts[rank % per_node].tensor_split(p // per_node)
    ring_sum(twins, pieces)
    ring_sum(twins, pieces, reduces=False)
    ring_sum(mates, parts, reduces=False)


@right("mended_hierarchy")
def by_recursion(tensor, per_node):
    """Inside, then the same with what is left, then inside again."""
    rank, p = dist.get_rank(), dist.get_world_size()
    levels = [range(rank - rank % per_node, rank - rank % per_node + per_node), range(rank % per_node, p, per_node)]

    def all_reduce(piece, rings):
        if rings:
            parts = piece.tensor_split(len(rings[0]))
            ring_sum(rings[0], parts)
            all_reduce(parts[rings[0].index(rank)], rings[1:])
            ring_sum(rings[0], parts, reduces=False)

    all_reduce(tensor, levels)


@right("mended_hierarchy")
def cut_once(tensor, per_node):
    """One cut into g k pieces; a part of the node is k of them in a row."""
    rank, p = dist.get_rank(), dist.get_world_size()
    node, local, nodes = rank // per_node, rank % per_node, p // per_node
    pieces = [piece for part in tensor.tensor_split(per_node) for piece in part.tensor_split(nodes)]
    ends = [sum(len(piece) for piece in pieces[: i * nodes]) for i in range(per_node + 1)]
    parts = [tensor[start:end] for start, end in pairwise(ends)]
    inside, across = [node * per_node + i for i in range(per_node)], [i * per_node + local for i in range(nodes)]
    mine = pieces[local * nodes : (local + 1) * nodes]
    for ranks, row in ((inside, parts), (across, mine)):
        ring_sum(ranks, row)
    for ranks, row in ((across, mine), (inside, parts)):
        ring_sum(ranks, row, reduces=False)


@right("halving_doubling_any")
def halves_by_recursion(tensor):
    """Each call halves, and on its return doubles."""
    rank, p = dist.get_rank(), dist.get_world_size()
    power = 1 << (p.bit_length() - 1)
    beyond = p - power
    if rank < 2 * beyond and rank % 2 == 0:
        dist.isend(tensor, rank + 1).wait()
        dist.irecv(tensor, rank + 1).wait()
        return
    if rank < 2 * beyond:
        handed_over = torch.zeros_like(tensor)
        dist.recv(handed_over, rank - 1)
        tensor.add_(handed_over)
        del handed_over
    place = rank // 2 if rank < 2 * beyond else rank - beyond

    def swap(out, to):
        partner = 2 * to + 1 if to < beyond else to + beyond
        sending = dist.isend(out, partner)
        return sending, partner

    def sum_up(piece, distance):
        if distance == power:
            return
        lower, upper = piece.tensor_split(2)
        mine, its = (upper, lower) if place & distance else (lower, upper)
        sending, partner = swap(its, place ^ distance)
        arrived = torch.zeros_like(mine)
        dist.recv(arrived, partner)
        sending.wait()
        mine.add_(arrived)
        del arrived
        sum_up(mine, 2 * distance)
        sending, partner = swap(mine, place ^ distance)
        dist.recv(its, partner)
        sending.wait()

    sum_up(tensor, 1)
    if rank < 2 * beyond:
        dist.send(tensor, rank - 1)


@right("halving_doubling_any")
def as_first_and_last_row(tensor):
    """Pieces by where they begin and end; the higher place keeps the first half, which is the smaller one."""
    rank, p = dist.get_rank(), dist.get_world_size()
    power = 1
    while 2 * power <= p:
        power *= 2
    gone = list(range(0, 2 * (p - power), 2))
    if rank in gone:
        dist.send(tensor, rank + 1)
        dist.recv(tensor, rank + 1)
        return
    room = torch.empty_like(tensor)
    if rank - 1 in gone:
        dist.recv(room, rank - 1)
        tensor += room
    places = [other for other in range(p) if other not in gone]
    first, end, way = 0, len(tensor), []
    for step in range(power.bit_length() - 1):
        partner = places[places.index(rank) ^ (1 << step)]
        middle = (first + end) // 2
        keep, give = (first, middle), (middle, end)
        if rank < partner:
            keep, give = give, keep
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.irecv, room[slice(*keep)], partner),
                dist.P2POp(dist.isend, tensor[slice(*give)], partner),
            ]
        )
        [work.wait() for work in works]
        tensor[slice(*keep)] += room[slice(*keep)]
        way.insert(0, (partner, keep, give))
        first, end = keep
    for partner, keep, give in way:
        works = [dist.irecv(tensor[slice(*give)], partner), dist.isend(tensor[slice(*keep)], partner)]
        [work.wait() for work in works]
    if rank - 1 in gone:
        dist.send(tensor, rank - 1)


@right("halving_doubling_any")
def with_a_stack_of_halves(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left_over = p - 2 ** (p.bit_length() - 1)
    takes_part = rank >= 2 * left_over or rank % 2 == 1
    if not takes_part:
        dist.send(tensor, rank + 1)
    elif rank < 2 * left_over:
        tensor += received_from(rank - 1, tensor)
    if takes_part:
        ranks = list(range(1, 2 * left_over, 2)) + list(range(2 * left_over, p))
        me, halves, partners = ranks.index(rank), [tensor], []
        while 1 << len(partners) < len(ranks):
            bit = 1 << len(partners)
            partners.append(ranks[me ^ bit])
            both = halves[-1].tensor_split(2)
            sending = dist.isend(both[not me & bit], partners[-1])
            both[bool(me & bit)].add_(received_from(partners[-1], both[bool(me & bit)]))
            sending.wait()
            halves += [both[not me & bit], both[bool(me & bit)]]
        while partners:
            kept, given, partner = halves.pop(), halves.pop(), partners.pop()
            sending = dist.isend(kept, partner)
            dist.recv(given, partner)
            sending.wait()
    if not takes_part:
        dist.recv(tensor, rank + 1)
    elif rank < 2 * left_over:
        dist.send(tensor, rank - 1)


def received_from(rank, like):
    arrived = torch.empty_like(like)
    dist.recv(arrived, rank)
    return arrived


@right("chain_reduce")
def receives_and_sends_without_waiting(tensor, chunks):
    """All receives are posted one ahead; sends are waited for at the end."""
    rank, p = dist.get_rank(), dist.get_world_size()
    sends = []
    for part in tensor.tensor_split(chunks):
        if rank < p - 1:
            arrived = torch.empty_like(part)
            dist.irecv(arrived, rank + 1).wait()
            part.add_(arrived)
        if rank:
            sends.append(dist.isend(part, rank - 1))
    for each in sends:
        each.wait()


@right("chain_reduce")
def in_views_of_rows(tensor, chunks):
    rank, p = dist.get_rank(), dist.get_world_size()
    ends, start = [], 0
    for part in tensor.tensor_split(chunks):
        ends.append((start, start + len(part)))
        start += len(part)
    room, before = torch.zeros_like(tensor[: ends[0][1]]), None
    for first, end in ends:
        if rank + 1 < p:
            dist.recv(room[: end - first], rank + 1)
            tensor[first:end] += room[: end - first]
        if before is not None:
            before.wait()
        before = dist.isend(tensor[first:end], rank - 1) if rank else None
    if before is not None:
        before.wait()


@right("chain_reduce")
def without_messages_of_nothing(tensor, chunks):
    """More chunks than numbers: those that hold none are not sent."""
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = [part for part in tensor.tensor_split(chunks) if len(part)]
    arrived = torch.empty_like(parts[0])
    place = p - 1 - rank
    for step in range(p - 2 + len(parts)):
        leaves, comes = step - place, step - place + 1
        messages = []
        if rank > 0 and 0 <= leaves < len(parts):
            messages.append(dist.P2POp(dist.isend, parts[leaves], rank - 1))
        if rank < p - 1 and 0 <= comes < len(parts):
            messages.append(dist.P2POp(dist.irecv, arrived[: len(parts[comes])], rank + 1))
        for work in dist.batch_isend_irecv(messages) if messages else []:
            work.wait()
        if rank < p - 1 and 0 <= comes < len(parts):
            parts[comes].add_(arrived[: len(parts[comes])])
