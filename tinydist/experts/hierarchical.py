"""Hierarchical dispatch: across nodes first, then inside; a token is sent to a node once, however many experts it has
there.

    rank l of node 0 --across--> rank l of node 1 --inside--> the ranks of the token's experts
                     <--one row--  adds their outputs up  <--inside--

    messages across nodes, a rank       nodes - 1       (all ranks outside of the node, if flat)
    rows across nodes                   (token, node) pairs; as many as assignments without ``deduplicate``
    more for a row                      s experts' numbers (4 bytes each) and weights; s: k of the router, or 1

The rank of a node to which a token comes, a relay, dispatches it inside as if it were its own (dispatch.py), with the
weights that came along, and returns the weighted sum: a row for a row. The price is a second hop: its latency, and more
bytes inside the node.

Where ``across`` is the whole group and ``inside`` a rank alone, a token is sent to a rank once.
Sources: DeepSeek-AI, DeepSeek-V3, 2024, section 3.2.2; DeepEP (deepseek-ai/DeepEP), internode dispatch; Tutel (Hwang et
al., 2022), section 3.3 (2DH: without deduplication).
"""

import torch

from .all_to_all import AllToAll, counts_from_all, part_of_experts, place
from .dispatch import added, dispatched
from .routing import Routing, places


def relayed(x, routing, experts, across, inside, deduplicate=True):
    """As ``dispatched``, over the ranks of ``across`` x ``inside``; node n has the n-th part of the experts."""
    nodes = place(across)[1]
    each = part_of_experts(routing.num_experts, nodes)
    going, token, numbers, weights = rows_of(routing, nodes, each, deduplicate)
    coming = [n for (n,) in counts_from_all([[n] for n in going], across)]
    moves = [AllToAll(going, coming, across) for _ in range(3)]
    moving = [move.start(of_rows) for move, of_rows in zip(moves, (x[token], numbers, weights))]
    yield moves[0]
    rows, mine, weights = (move.finish(of_rows) for move, of_rows in zip(moves, moving))  # [R, D], [R, s], [R, s]
    row, slot = (mine >= 0).nonzero(as_tuple=True)
    here = Routing.of(row, mine[row, slot].long(), weights[row, slot], len(rows), each, each)
    y, combined = yield from dispatched(rows, here, experts, inside)  # [R, D]: the sums over this node's experts
    if combined != here.assigned:
        raise RuntimeError(f"relayed: {here.assigned} assignments came to this relay, {combined} were combined")
    back = moves[0].back()
    y = back.start(y)
    yield back
    y = back.finish(y)  # [U, D]
    return added(y, token, x), int((numbers >= 0).sum())


def rows_of(routing, nodes, each, deduplicate=True):
    """What goes across, by node: rows for each node, a list; of each row its token [U], and the experts that it goes
    to, counted in their node, [U, s], with -1 for none, and their weights [U, s]."""
    N = max(routing.num_tokens, 1)
    pair = routing.experts // each * N + routing.tokens  # [A]: a node and a token
    if deduplicate:
        rows, row = pair.unique(return_inverse=True)  # [U], [A]
    else:
        rows, order = pair.sort(stable=True)
        row = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
    slots = min(routing.width, each) if deduplicate else 1
    at = row, places(row, len(rows))
    numbers = torch.full((len(rows), slots), -1, dtype=torch.int32, device=pair.device)
    numbers = numbers.index_put(at, (routing.experts % each).int())
    weights = routing.weights.new_zeros(len(rows), slots).index_put(at, routing.weights)
    return torch.bincount(rows // N, minlength=nodes).tolist(), rows % N, numbers, weights
