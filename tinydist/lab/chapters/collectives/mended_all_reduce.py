"""A ring all-reduce with two bugs, of which a machine that buffers what is sent shows neither."""

import torch
import torch.distributed as dist

from ...exercise import exercise
from .all_reduce import TARGETS, properties


@exercise(
    chapter="02_collectives",
    title="Find two bugs",
    minutes=20,
    difficulty=3,
    targets={"runs": "where a send waits for its receive, as on the simulated ranks, it must not hang", **TARGETS},
    hints=[
        "The sum is right wherever a send returns before its message is received. Run it on simulated ranks, where it "
        "waits, and read the report: in which call does each rank wait, and for whom?",
        "Every rank is in send, so none comes to recv. Start both at once: batch_isend_irecv, or isend before recv, "
        "and wait after. That is the first bug.",
        "The second is in the bytes: how large is each message, and how much of it is used?",
        "Only part i of what arrives is used. So one part is enough: receive into a tensor as large as part i. Which "
        "part does the right neighbor use in this step?",
        "If part i arrives from the left in this step, then part (i + 1) % p goes to the right. Send parts[(i + 1) % "
        "p].",
    ],
    why="Programs that hang only when tensors grow have this first bug: small messages are buffered, large ones wait "
    "for their receiver. The second bug is found by nobody who looks at the numbers alone: only by who counts the "
    "bytes.",
    check=properties,
)
def mended_all_reduce(tensor):
    """Mend this ring all-reduce: it has two bugs, and gives the right sum on machines where a send does not wait.

    It should replace ``tensor`` on every rank by the sum of all ranks' tensors, with the bytes and the time of a ring.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % p, (rank - 1) % p
    parts = tensor.tensor_split(p)
    arrived = torch.empty_like(tensor)
    for step in range(p - 1):
        i = (rank - 2 - step) % p
        dist.send(tensor, right)
        dist.recv(arrived, left)
        parts[i].add_(arrived.tensor_split(p)[i])
    for step in range(p - 1):
        i = (rank - 1 - step) % p
        dist.send(tensor, right)
        dist.recv(arrived, left)
        parts[i].copy_(arrived.tensor_split(p)[i])
