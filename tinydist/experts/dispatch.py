"""Dispatch and combine: an all-to-all brings each token to the ranks of its experts, another brings their outputs back.

    rank 0: experts 0, 1     tokens by expert    | 0 0 | 1 | 2 | 3 3 |   --> rows 0 0 1 stay, 2 3 3 go to rank 1
    rank 1: experts 2, 3                         | 0 | 2 2 2 | 3     |   --> row 0 goes to rank 0

    sort by expert | all-to-all | sort what came by expert | experts | the reverse of each | add to the token, weighted

Splits are uneven, so ranks first tell one another how many rows come: E/p whole numbers for each.

    sent by a rank, forward     2 (dispatch, combine) x rows for other ranks x D numbers     (p-1)/p of k N, if even
    backward                    the same

Everything is a generator that yields each transfer when it is under way, and returns the result: others may run
meanwhile (interleave.py, paired.py).
Sources: Lepikhin et al., GShard, 2020, section 3; Rajbhandari et al., DeepSpeed-MoE, 2022, section 5.
"""

import torch

from .all_to_all import AllToAll, counts_from_all, part_of_experts, place


def dispatched(x, routing, experts, group=None):
    """x [N, D] through ``experts(rows, counts)``, those of all ranks of ``group``: a generator; returns [N, D] and how
    many assignments were combined."""
    p = place(group)[1]
    each = part_of_experts(routing.num_experts, p)
    order = routing.experts.argsort(stable=True)
    tokens, weights = routing.tokens[order], routing.weights[order]
    flat = routing.counts()
    going = [flat[rank * each : (rank + 1) * each] for rank in range(p)]  # [p][E/p]
    coming = counts_from_all(going, group)  # [p][E/p]
    there = AllToAll(map(sum, going), map(sum, coming), group)
    rows = there.start(x[tokens])  # [A, D]
    yield there
    rows = there.finish(rows)  # [R, D], by rank, and of each rank by expert
    y = experts(by_expert(rows, coming), [sum(counts) for counts in zip(*coming)])
    back = there.back()
    y = back.start(by_rank(y, coming))
    yield back
    y = back.finish(y)  # [A, D]
    return added((y * weights[:, None]).to(x.dtype), tokens, x), len(y)


def added(rows, to, like):
    """[N, D]: the sum of the rows [A, D] of each token. (``index_add`` would keep them for backward.)"""
    return torch.zeros_like(like).scatter_add(0, to[:, None].expand_as(rows), rows)


def by_expert(rows, counts):
    """Rows in blocks [rank][expert] in the order of experts. ``counts[rank][expert]``: rows of a block."""
    blocks = rows.split([n for of_rank in counts for n in of_rank])
    each = len(counts[0])
    return rows if len(counts) == 1 else torch.cat([block for expert in range(each) for block in blocks[expert::each]])


def by_rank(rows, counts):
    """The reverse."""
    blocks = rows.split([n for of_expert in zip(*counts) for n in of_expert])
    p = len(counts)
    return rows if p == 1 else torch.cat([block for rank in range(p) for block in blocks[rank::p]])
