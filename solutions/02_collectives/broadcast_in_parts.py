"""Broadcast of a large tensor: a scatter, then an all-gather on a ring. No rank sends it more than twice.

Source: Thakur, Rabenseifner and Gropp 2005, section 4.2, who follow van de Geijn.
"""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Memory, Messages, Own, Seconds, Values, Waits, exercise, mistake

from .chapter import BY_HAND, LARGE, SOLVED, largest_part, numbers

SCATTER = "dist.send(parts[other], other)"
TAKEN = "dist.recv(parts[rank], src)"


def case(ranks, src, *shape, dtype=torch.float32, measured=False, changed=None, **how):
    about = f"src={src}, {' x '.join(map(str, shape))} numbers each" + (", in another order of events" if how else "")
    if changed is not None:
        about += f", and those that rank {changed} sends changed on the way"
    return Case(ranks, lambda rank: (numbers(rank, shape, dtype), src), about, measured, changed, how=how)


def test_cases():
    for ranks, src, count in [
        (4, 1, 8),
        (3, 0, 13),
        (2, 0, 8),
        (2, 1, 9),
        (3, 2, 2),
        (4, 3, 18),
        (5, 2, 13),
        (8, 6, 24),
        (8, 0, 5),
        (1, 0, 4),
    ]:
        yield case(ranks, src, count)
    yield case(3, 1, 5, 3, dtype=torch.float64)
    yield case(4, 0, 9, dtype=torch.int64)
    yield case(4, 2, 10, schedule="shuffle", seed=1)
    yield case(4, 0, 10, changed=0)  # the source, whose own numbers come back to it changed
    for ranks, src in ((4, 1), (8, 2)):
        yield case(ranks, src, LARGE, measured=True)


@exercise(
    title="Broadcast a large tensor",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Values("all ranks have the numbers of src, in the tensor itself, on 1 to 8 ranks, whatever src is"),
        Own("nothing but messages", BY_HAND, SOLVED, only=["message"]),
        Waits("each message is received and waited for"),
        Bytes("(p-1) n in all: each rank receives every number once, and src none", together=True),
        Messages("from src one to each rank, then p-1 of each rank to its right neighbor, but for src"),
        Memory("nothing besides the tensor: receive into its parts", slack=lambda case: largest_part(case) // 2),
        Seconds(
            "2(p-1) steps, each as long as a message of a part takes, and up to 5 % more",
            "On the ring all ranks should send and receive at the same time: isend and irecv, or batch_isend_irecv",
            room=1.05,
        ),
    ],
    mistakes=[
        mistake(
            "A star: rank src sends the whole tensor to each other rank. A part is enough, and the ring does the rest",
            SCATTER,
            "dist.send(tensor, other)",
            TAKEN,
            "dist.recv(tensor, src)",
            "range(p - 1)",
            "range(0)",
        ),
        mistake(
            "The scatter deals out whole tensors, and then there is nothing left to gather: send parts[other]",
            SCATTER,
            "dist.send(tensor, other)",
            TAKEN,
            "dist.recv(tensor, src)",
        ),
        mistake(
            "The last step of the all-gather is missing: some ranks still lack a part",
            "range(p - 1)",
            "range(p - 2)",
        ),
        mistake("The all-gather is missing: each rank has one part", "range(p - 1)", "range(0)"),
        mistake(
            "What is passed on has not arrived yet: in each step it is what arrived in the step before",
            "parts[(rank - step) % p], parts[(rank - 1 - step) % p]",
            "parts[(rank + step) % p], parts[(rank - 1 + step) % p]",
        ),
        mistake(
            "What arrives is there twice: receive into the part itself, which is a view of the tensor",
            "        messages = []\n",
            "        messages, arrived = [], arrives.clone()\n",
            "arrives, left)",
            "arrived, left)",
            "            work.wait()",
            "            work.wait()\n        arrives.copy_(arrived)",
        ),
        mistake(
            "Rank src has all parts, and its left neighbor sends them to it once more: spare these messages",
            "if right != src",
            "if True",
            "if rank != src",
            "if True",
        ),
        mistake(
            "After the scatter rank r has part r: with this the ring begins. In a reduce-scatter it is part r - 1",
            "parts[(rank - step) % p], parts[(rank - 1 - step) % p]",
            "parts[(rank - 1 - step) % p], parts[(rank - 2 - step) % p]",
        ),
    ],
    hints=[
        "Which two of the eight collectives, one after the other, make a broadcast of this?",
        "After the scatter rank r has part r and nothing else. That is where the ring all-gather of the notebook "
        "begins. Which message of it does nobody need?",
        "The source sends part `other` to each other rank, and rank r receives into parts[r]. Then come p - 1 steps on "
        "the ring: each rank sends its own part first, and then always what has just arrived. The left neighbor of src "
        "sends nothing there.",
    ],
    why="A star sends p-1 tensors through one rank. This sends less than two, however many ranks there are, and so MPI "
    "libraries broadcast long messages like this. For short ones its many steps are too many.",
)
def broadcast_in_parts(tensor, src):
    """Broadcast ``tensor`` from rank ``src`` to all ranks, in place, so that no rank sends more than twice the tensor.

    First ``src`` deals out the parts of ``tensor.tensor_split(p)``, part r to rank r. Then all parts go round a ring,
    to the right. Rank ``src`` has all of them, and nothing is sent to it.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % p, (rank - 1) % p
    parts = tensor.tensor_split(p)
    # ? Scatter: part r goes from src to rank r.
    if rank == src:
        for other in range(p):
            if other != src:
                dist.send(parts[other], other)
    else:
        dist.recv(parts[rank], src)
    # .
    for step in range(p - 1):
        # ? All-gather: what do you send in this step, and what arrives? And who sends or receives nothing?
        leaves, arrives = parts[(rank - step) % p], parts[(rank - 1 - step) % p]
        messages = []
        if right != src:
            messages.append(dist.P2POp(dist.isend, leaves, right))
        if rank != src:
            messages.append(dist.P2POp(dist.irecv, arrives, left))
        for work in dist.batch_isend_irecv(messages):
            work.wait()
