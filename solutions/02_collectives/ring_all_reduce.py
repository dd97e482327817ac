"""All-reduce on a ring: a reduce-scatter, then an all-gather."""

import torch
import torch.distributed as dist

from tinydist.lab.author import (
    Bytes,
    Memory,
    Messages,
    Own,
    Received,
    Seconds,
    Values,
    also,
    exercise,
    mistake,
    of_sums,
)

from .chapter import BY_HAND, SOLVED, largest_part, sums, uneven


@exercise(
    title="All-reduce on a ring",
    minutes=20,
    difficulty=3,
    worlds=sums,
    targets=[
        Values(
            "the sum, in the tensor itself, on 1, 2, 3, 4 and 8 ranks; uneven parts, and fewer numbers than ranks",
            explain=of_sums,
        ),
        Own("nothing but messages", BY_HAND, SOLVED, only=["message"]),
        Received("each message is received and waited for"),
        Bytes("each rank sends 2(p-1)/p n; if the parts are uneven, 2(p-1) n in all", together=uneven),
        Messages("2(p-1) of each rank, to its right neighbor only"),
        Memory("two parts besides the tensor: what arrives, and what is sent meanwhile", slack=largest_part),
        Seconds(
            "2(p-1) (alpha + n/(p beta))",
            "In each step all ranks should send and receive at the same time: isend and irecv, or batch_isend_irecv",
        ),
    ],
    mistakes=[
        mistake(
            "What arrives in the second half is finished: it was added to what stood there, and should be copied",
            "        pass_on(parts[(rank - step) % p], parts[(rank - 1 - step) % p])",
            "        finished = parts[(rank - 1 - step) % p]\n"
            "        arrived = torch.empty_like(finished)\n"
            "        pass_on(parts[(rank - step) % p], arrived)\n"
            "        finished += arrived",
        ),
        mistake(
            "The second half is missing, or a step short: each rank has finished one part, and those of the others "
            "have yet to go round",
            "        pass_on(parts[(rank - step) % p], parts[(rank - 1 - step) % p])",
            "        pass",
        ),
        mistake(
            "The last hop is missing in the first half: a part makes p - 1",
            "    for step in range(p - 1):  # what arrives is added",
            "    for step in range(max(1, p - 2) if p > 1 else 0):  # what arrives is added",
        ),
        mistake("What arrives in the first half is not added to your own numbers", "mine += arrived", "pass"),
        mistake(
            "The second half begins with a part that is not finished, and writes over those that are: which part has "
            "each rank finished?",
            "pass_on(parts[(rank - step) % p], parts[(rank - 1 - step) % p])",
            "pass_on(parts[(rank + 1 - step) % p], parts[(rank - step) % p])",
        ),
        mistake(
            "This is the mean, and the sum is asked for", "tensor.tensor_split(p)", "tensor.div_(p).tensor_split(p)"
        ),
    ],
    ways=[
        also(  # each rank finishes the part of its right neighbor
            "mine = parts[(rank - 2 - step) % p]",
            "mine = parts[(rank - 1 - step) % p]",
            "pass_on(parts[(rank - 1 - step) % p], arrived)",
            "pass_on(parts[(rank - step) % p], arrived)",
            "pass_on(parts[(rank - step) % p], parts[(rank - 1 - step) % p])",
            "pass_on(parts[(rank + 1 - step) % p], parts[(rank - step) % p])",
        )
    ],
    hints=[
        "A reduce-scatter leaves each rank with one part of the sum. What has to go round then, so that all have all?",
        "The second half is an all-gather: finished parts go round, and they are copied where they arrive, not added.",
        "If rank r has part r of the sum, then in step s of the second half a rank sends part (rank - s) % p, and "
        "part (rank - 1 - s) % p arrives.",
        "The first half is that of ring_reduce_scatter, added in place: parts of tensor_split are views, so what you "
        "add to them is added to the tensor. In the second half receive into the part itself.",
    ],
    why="A ring all-reduce sends 2(p-1)/p n a rank: less than two tensors, on 8 ranks or on 8,000. It is what sums "
    "the gradients of data parallel training wherever tensors are large.",
)
def ring_all_reduce(tensor):
    """Replace ``tensor`` on every rank by the sum of all ranks' tensors, in place, on a ring.

    Cut it into p parts, as ``tensor.tensor_split(p)`` does, and pass them to the right: first until each is summed,
    then until all ranks have all.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % p, (rank - 1) % p
    parts = tensor.tensor_split(p)  # views: what is written into them is written into the tensor
    # -

    def pass_on(outgoing, arriving):
        both = [dist.P2POp(dist.isend, outgoing, right), dist.P2POp(dist.irecv, arriving, left)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    # .
    for step in range(p - 1):  # what arrives is added  # = for step in range(p - 1):
        # ? Reduce-scatter: add what arrives.
        mine = parts[(rank - 2 - step) % p]
        arrived = torch.empty_like(mine)
        pass_on(parts[(rank - 1 - step) % p], arrived)
        mine += arrived
    for step in range(p - 1):  # what arrives is finished  # = for step in range(p - 1):
        # ? All-gather: keep what arrives.
        pass_on(parts[(rank - step) % p], parts[(rank - 1 - step) % p])
