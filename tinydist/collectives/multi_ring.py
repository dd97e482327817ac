"""Multi-ring all-reduce (NCCL's channels): several rings, each with a part of the tensor, use all NICs of a node.

    2 nodes of 4        ring 0:  0 1 2 3 | 4 5 6 7 | and back       leaves by ranks 3 and 7, arrives at 0 and 4
                        ring 1:  1 2 3 0 | 5 6 7 4 |                leaves by ranks 0 and 4, arrives at 1 and 5
                        ring 2:  2 3 0 1 | 6 7 4 5 |                and so on: g rings for g ranks of a node

A flat ring sends through one NIC of each node, and the others idle. g rings send the same bytes, split over g cards. In
each step a rank sends g-1 parts to its neighbor inside the node, as one message, and one part to another node:

    all_reduce    2(p-1) max(a_in + (g-1) n/(g p b_in), a_out + n/(g p b_out))        p = g k, k > 1 nodes

NCCL calls its rings channels, and orders ranks so (NVIDIA/nccl#1453 logs sixteen over three nodes of eight). But its
ring 0 leaves a node by the NIC through which it entered, that of rank 0: the last rank hands its parts over NVLink to
rank 0's memory (PXN, PCI x NVLink), and all stay on one rail, the NICs of one number in all nodes. Here the last rank
sends through its own NIC. Each NIC carries as much.
Channels are thread blocks that run beside one another, so none waits for another's latency: hence the one message.
Source: NVIDIA/nccl, src/graph/search.cc and connect.cc; the ring: Patarasuk and Yuan, 2009.
"""

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup, ReduceOp

from ..rules import listed, validate, whole
from . import ring
from .messages import as_contiguous_1d, place
from .reduction import add_up, finish, known
from .sends import Cost, part_sizes


@validate(tensor=torch.Tensor, per_node=listed, op=known, group=ProcessGroup)
def all_reduce(tensor, per_node, op=ReduceOp.SUM, group=None):
    """``tensor`` becomes the sum of all ranks' tensors. The first ``per_node`` ranks share a node, and so on."""
    rank, p = place(group)
    shares = as_contiguous_1d(tensor, "all_reduce").tensor_split(per_node)
    rings = [Ring(share, order, rank) for share, order in zip(shares, orders(p, per_node))]
    for step in range(p - 1):
        mine = [each.part(-step - 2) for each in rings]
        arrived = [torch.empty_like(part) for part in mine]
        pass_on(rings, [each.part(-step - 1) for each in rings], arrived, group)
        for total, part in zip(mine, arrived):
            add_up(total, part, op)
    for each in rings:
        finish(each.part(0), op, p)
    for step in range(p - 1):
        pass_on(rings, [each.part(-step) for each in rings], [each.part(-step - 1) for each in rings], group)


class Ring:
    """One ring as a rank sees it, which stands at ``place`` in it."""

    def __init__(self, share, order, rank):
        self.place, p = order.index(rank), len(order)
        self.left, self.right = order[self.place - 1], order[(self.place + 1) % p]
        self.parts = share.tensor_split(p)

    def part(self, offset):
        """Counted from its own place."""
        return self.parts[(self.place + offset) % len(self.parts)]


def orders(ranks, per_node):
    """The ranks of each ring, in its order."""
    if ranks % per_node:
        raise ValueError(f"multi_ring: the number of ranks ({ranks}) must be divisible by per_node ({per_node})")
    nodes = [list(range(first, first + per_node)) for first in range(0, ranks, per_node)]
    return [[rank for node in nodes for rank in node[start:] + node[:start]] for start in range(per_node)]


def pass_on(rings, outgoing, incoming, group):
    """A step of all rings, at the same time. What goes to the same neighbor is one message."""
    leaving, coming = {}, {}  # neighbor -> parts, in the order of the rings
    for each, out, into in zip(rings, outgoing, incoming):
        leaving.setdefault(each.right, []).append(out)
        coming.setdefault(each.left, []).append(into)
    arrived = {left: torch.cat(parts) for left, parts in coming.items()}
    messages = [dist.P2POp(dist.isend, torch.cat(parts), group=group, group_peer=to) for to, parts in leaving.items()]
    messages += [dist.P2POp(dist.irecv, whole, group=group, group_peer=left) for left, whole in arrived.items()]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    for left, parts in coming.items():
        for into, part in zip(parts, arrived[left].split([len(into) for into in parts])):
            into.copy_(part)


@validate(num_elements=whole, per_node=listed, nodes=listed, itemsize=whole)
def all_reduce_cost(num_elements, per_node, nodes, itemsize=4) -> tuple[Cost, Cost]:
    """What goes inside the nodes and what goes across, at the same time: it takes the longer of both.

    A rank sends to another node in one ring, where it stands last in its node, and inside in the others. Of uneven
    parts it takes ``steps`` at most.
    """
    p = per_node * nodes
    inside, across = [0] * p, [0] * p
    for share, order in zip(part_sizes(num_elements, per_node), orders(p, per_node)):
        sizes = [itemsize * size for size in part_sizes(share, p)]
        single = ring.reduce_scatter_cost(sizes).then(ring.all_gather_cost(sizes))
        for rank, right, sent in zip(order, [*order[1:], order[0]], single.sent):
            leaves = rank // per_node != right // per_node
            (across if leaves else inside)[rank] += sent
    rounds, part = 2 * (p - 1), itemsize * part_sizes(part_sizes(num_elements, per_node)[0], p)[0]
    outside = int(nodes > 1)  # of the rings of a rank
    within = per_node - outside
    steps_inside, steps_across = rounds * (within > 0), rounds * outside
    return (
        Cost(inside, [steps_inside] * p, [(steps_inside, within * part)]),
        Cost(across, [steps_across] * p, [(steps_across, part)]),
    )
