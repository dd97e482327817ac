"""Hierarchical (two-level) all-reduce: minimizes the bytes on the slow links between nodes.

    inside each node    reduce-scatter: local rank l holds part l, summed over its node
    across the nodes    all-reduce of part l, among the ranks with local rank l: 1/g of the bytes each
    inside each node    all-gather

    2(g-1) (a_in + n/(g b_in)) + 2(k-1) (a_out + n/(g k b_out))         g ranks in each of k nodes

If only the links between nodes take time, that is (g k - 1)/(k - 1) times as fast as one flat ring.
Source: Thakur et al. 2005 on each level; Mikami et al., Massively Distributed SGD, 2018 (2D-torus).
"""

import torch
from torch.distributed import ProcessGroup, ReduceOp

from ..rules import listed, validate, whole
from . import ring
from .messages import as_contiguous_1d, place
from .reduction import finish, known
from .sends import Cost, part_sizes


@validate(tensor=torch.Tensor, inside=ProcessGroup | None, across=ProcessGroup | None, op=known)
def all_reduce(tensor, inside, across, op=ReduceOp.SUM):
    """``tensor`` becomes the sum of all ranks' tensors.

    ``inside``: the group of this rank's node; ``across``: that of the ranks with its local rank, one in each node.
    They are the axes of a mesh: ``init_device_mesh("cpu", (nodes, per_node))`` has ``across`` first.
    """
    (local, g), (_, k) = place(inside), place(across)
    parts = as_contiguous_1d(tensor, "all_reduce").tensor_split(g)
    total = ReduceOp.SUM if op == ReduceOp.AVG else op  # one division, at the end
    ring.reduce_scatter(parts[local], parts, total, inside)
    ring.all_reduce(parts[local], total, across)
    finish(parts[local], op, g * k)
    ring.all_gather(parts, parts[local], inside)


@validate(num_elements=whole, per_node=listed, nodes=listed, itemsize=whole)
def all_reduce_cost(num_elements, per_node, nodes, itemsize=4) -> tuple[Cost, Cost]:
    """What goes inside the nodes and what goes across: ``inside.seconds(a) + across.seconds(b)``."""
    sizes = part_sizes(num_elements, per_node)
    one_node = ring.all_reduce_cost(num_elements, per_node, itemsize)
    columns = [ring.all_reduce_cost(size, nodes, itemsize) for size in sizes]
    by_rank = [(column.sent[node], column.messages[node]) for node in range(nodes) for column in columns]
    across = Cost(*(list(each) for each in zip(*by_rank)), columns[0].steps)
    return Cost(one_node.sent * nodes, one_node.messages * nodes, one_node.steps), across
