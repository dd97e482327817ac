"""Reduce-scatter on a ring: each part goes round once, and every rank adds its numbers to it."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Memory, Messages, Own, Received, Seconds, Values, exercise, mistake, of_sums

from .chapter import BY_HAND, SOLVED, largest_part, sums


@exercise(
    title="Reduce-scatter on a ring",
    minutes=25,
    difficulty=3,
    worlds=sums,
    targets=[
        Values(
            "rank r returns part r (of tensor_split) of the sum, on 1, 2, 3, 4 and 8 ranks; uneven and empty parts",
            scratch=True,
            explain=of_sums,
        ),
        Own("nothing but messages", BY_HAND, SOLVED, only=["message"]),
        Received("each message is received and waited for"),
        Bytes("each rank sends n - its part: (p-1)/p n if the parts are even"),
        Messages("p-1 of each rank, to its right neighbor only"),
        Memory(
            "two parts besides the tensor: what arrives, and what is sent meanwhile. Work on the tensor itself, and "
            "add in place",
            slack=largest_part,
        ),
        Seconds(
            "(p-1) (alpha + n/(p beta))",
            "In each step all ranks should send and receive at the same time: isend and irecv, or batch_isend_irecv",
        ),
    ],
    mistakes=[
        mistake("The last hop is missing: a part makes p - 1", "range(p - 1)", "range(max(1, p - 2) if p > 1 else 0)"),
        mistake("What arrives is not added to your own numbers", "mine += arrived", "mine.copy_(arrived)"),
        mistake(
            "The last hop is missing, or what arrived was not added (or added before wait), or the sum stands in "
            "another part: on which rank does each part end?",
            "mine += arrived",
            "pass",
        ),
        mistake(
            "The parts go round as they should, and another one is returned",
            "return parts[rank]",
            "return parts[(rank + 1) % p]",
        ),
        mistake("This is the mean, and the sum is asked for", "return parts[rank]", "return parts[rank] / p"),
        mistake(
            "A rank adds into a new tensor: add in place, parts[i].add_(arrived), so that no part is there twice",
            "mine += arrived",
            "parts[(rank - 2 - step) % p] = mine + arrived",
        ),
        mistake(
            "Parts differ in size: what arrives is as large as your own part of that number",
            "torch.empty_like(mine)",
            "torch.empty_like(parts[-1])",
        ),
    ],
    hints=[
        "Follow one part. It starts on some rank, goes round the ring, and each rank adds its own numbers before it "
        "passes the part on. On which rank must it start, to end on the rank that returns it?",
        "Part r ends on rank r after p-1 hops, so it starts on rank r+1: in step 0 each rank sends part rank-1.",
        "In step s a rank sends part (rank - 1 - s) % p, and part (rank - 2 - s) % p arrives: the one that it sends "
        "next.",
        "The part that arrives is as large as your own part of that number: torch.empty_like(parts[(rank - 2 - step) "
        "% p]). Send and receive with one batch_isend_irecv, wait for both, then add what arrived to your part, in "
        "place.",
    ],
    why="This is how gradients are summed in ZeRO and FSDP: each rank keeps the sum of its own part, and has sent "
    "hardly more than one tensor, however many ranks there are. A star would send p-1 tensors through one link.",
)
def ring_reduce_scatter(tensor):
    """Return this rank's part of the sum of all ranks' tensors: rank r returns part r of ``tensor.tensor_split(p)``.

    Pass parts round the ring, to the right. ``tensor`` may be overwritten.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % p, (rank - 1) % p
    parts = list(tensor.tensor_split(p))
    for step in range(p - 1):
        # ? Which part goes to the right, and which arrives from the left? Send and receive at the same time.
        outgoing, mine = parts[(rank - 1 - step) % p], parts[(rank - 2 - step) % p]
        arrived = torch.empty_like(mine)
        both = [dist.P2POp(dist.isend, outgoing, right), dist.P2POp(dist.irecv, arrived, left)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        mine += arrived
    return parts[rank]
