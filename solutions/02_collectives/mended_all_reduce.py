"""A ring all-reduce with two bugs: one hangs, the other shows in the bytes alone."""

import torch
import torch.distributed as dist

from tinydist.lab.author import (
    Bytes,
    Memory,
    Messages,
    Own,
    Seconds,
    Values,
    Waits,
    also,
    exercise,
    mistake,
    of_sums,
)

from .chapter import BY_HAND, SOLVED, largest_part, sums, uneven

STARTED = (
    "        sending = dist.isend(parts[(i - 1) % p], left)  # started, not waited for: nobody waits in a circle\n"
)


@exercise(
    title="Find two bugs",
    minutes=20,
    difficulty=3,
    test_cases=sums,
    targets=[
        Values(
            "the sum, in the tensor itself, on 1, 2, 3, 4 and 8 ranks; uneven parts, and fewer numbers than ranks",
            explain=of_sums,
        ),
        Own("nothing but messages", BY_HAND, SOLVED, only=["message"]),
        Waits("each message is received and waited for"),
        Bytes(
            "each rank sends 2(p-1)/p n; if the parts are uneven, 2(p-1) n in all",
            "2(p-1)/p n of each rank, 2(p-1) n of all",
            together=uneven,
        ),
        Messages("2(p-1) of each rank, to its left neighbor only"),
        Memory("two parts besides the tensor", slack=largest_part),
        Seconds(
            "2(p-1) steps, each as long as a message of the largest part takes",
            "In each step all ranks should send and receive at the same time: isend and irecv, or batch_isend_irecv",
        ),
    ],
    mistakes=[
        mistake(
            "All ranks send first, and nobody receives: a send waits for its receive. Start it with isend, and wait "
            "for it after the receive",
            STARTED,
            "        dist.send(parts[(i - 1) % p], left)\n",
            "        sending = dist.isend(parts[(i - 1) % p], left)\n",
            "        dist.send(parts[(i - 1) % p], left)\n",
            "\n        sending.wait()",
            "",
            given=True,
        ),
        mistake(
            "Of what arrives only part i is used: nothing else needs to be sent",
            "(parts[(i - 1) % p], left)",
            "(tensor, left)",
            "    buffer = torch.empty_like(parts[0])\n",
            "    arrived = torch.empty_like(tensor)\n",
            "        arrived = buffer[: len(parts[i])]\n",
            "",
            "dist.recv(parts[i], right)",
            "dist.recv(arrived, right)\n        parts[i].copy_(arrived.tensor_split(p)[i])",
            "parts[i].add_(arrived)",
            "parts[i].add_(arrived.tensor_split(p)[i])",
            given=True,
        ),
        mistake(
            "In each step part i arrives, and part i - 1 leaves: the one that has arrived in the step before",
            "parts[(i - 1) % p]",
            "parts[i]",
        ),
        mistake(
            "The program passes parts to the left, and yours to the right: mend it, don't replace it",
            "right, left = (rank + 1) % p, (rank - 1) % p",
            "left, right = (rank + 1) % p, (rank - 1) % p",
            "(rank + 2 + step)",
            "(rank - 2 - step)",
            "(rank + 1 + step)",
            "(rank - 1 - step)",
            "(i - 1) % p",
            "(i + 1) % p",
        ),
        mistake(
            "This is the mean, and the sum is asked for",
            "        parts[i].add_(arrived)",
            "        parts[i].add_(arrived)\n        parts[i].div_(p if step == p - 2 else 1)",
        ),
        mistake(
            "The second half is missing: each rank has finished one part, and those of the others have yet to go round",
            "        dist.recv(parts[i], right)",
            "        dist.recv(torch.empty_like(parts[i]), right)",
        ),
        mistake("What arrives in the first half is not added", "parts[i].add_(arrived)", "parts[i].copy_(arrived)"),
        mistake(
            "The buffer is as large as the whole tensor, and one part arrives at a time: a part's room is enough",
            "torch.empty_like(parts[0])",
            "torch.empty_like(tensor)",
        ),
    ],
    alternatives=[  # each rank finishes the part of its left neighbor
        also("(rank + 1 + step) % p", "(rank + step) % p", "(rank + 2 + step) % p", "(rank + 1 + step) % p"),
    ],
    hints=[
        "The sum is right wherever a send returns before its message is received. Run it on simulated ranks, where it "
        "waits, and read the report: in which call does each rank wait, and for whom?",
        "Every rank is in send, so none comes to recv. Start both at once: batch_isend_irecv, or isend before recv, "
        "and wait after. That is the first bug.",
        "The second is in the bytes: how large is each message, and how much of it is used?",
        "Only part i of what arrives is used. So one part is enough: receive into a tensor as large as part i. Which "
        "part does the left neighbor use in this step?",
        "If part i arrives from the right in this step, then part (i - 1) % p goes to the left. Send parts[(i - 1) % "
        "p].",
    ],
    why="Programs that hang only when tensors grow have this first bug: small messages are buffered, large ones wait "
    "for their receiver. The second bug is found by nobody who looks at the numbers alone: only by who counts the "
    "bytes.",
)
def mended_all_reduce(tensor):
    """Mend this ring all-reduce. It has two bugs: it hangs for large tensors, and it costs too much.

    It should replace ``tensor`` on every rank by the sum of all ranks' tensors, with the bytes and the time of a ring.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % p, (rank - 1) % p
    parts = tensor.tensor_split(p)
    buffer = torch.empty_like(parts[0])
    for step in range(p - 1):
        i = (rank + 2 + step) % p
        arrived = buffer[: len(parts[i])]
        sending = dist.isend(parts[(i - 1) % p], left)  # started, not waited for: nobody waits in a circle
        dist.recv(arrived, right)
        sending.wait()
        parts[i].add_(arrived)
    for step in range(p - 1):
        i = (rank + 1 + step) % p
        sending = dist.isend(parts[(i - 1) % p], left)
        dist.recv(parts[i], right)
        sending.wait()
