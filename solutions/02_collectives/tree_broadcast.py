"""Broadcast along a binomial tree: each round doubles the ranks that have the numbers."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Memory, Messages, Own, Received, Seconds, Values, exercise, mistake

from .chapter import BY_HAND, FLOAT, LARGE, SOLVED, numbers


def case(ranks, src, *shape, dtype=torch.float32, measured=False, changed=None, **how):
    about = f"src={src}, {' x '.join(map(str, shape))} numbers each" + (", in another order of events" if how else "")
    if changed is not None:
        about += f", and those that rank {changed} sends changed on the way"
    return Case(ranks, lambda rank: (numbers(rank, shape, dtype), src), about, measured, changed, how=how)


def worlds():
    for ranks, src in [(2, 0), (2, 1), (3, 0), (3, 2), (4, 1), (5, 0), (6, 5), (7, 3), (8, 1), (9, 4), (1, 0)]:
        yield case(ranks, src, 5)
    yield case(3, 1, 2, 3, dtype=torch.float64)
    yield case(5, 4, 5, dtype=torch.int64)
    yield case(6, 2, 5, schedule="shuffle", seed=1)
    yield case(6, 1, 5, changed=1)
    for ranks in (4, 8):
        yield case(ranks, 1, LARGE, measured=True)


@exercise(
    title="Broadcast along a tree",
    minutes=20,
    difficulty=2,
    worlds=worlds,
    targets=[
        Values("on 1 to 9 ranks, whatever src is, all ranks have the numbers of src, in the tensor itself"),
        Own("nothing but messages", BY_HAND, SOLVED, only=["message"]),
        Received("each message is received and waited for"),
        Bytes("(p-1) n in all", together=True),
        Messages("p-1 in all; no rank sends more than ceil(lg p): 3 on 8 ranks, where a star sends 7", most=True),
        Memory("nothing besides the tensor: receive into the tensor itself", slack=LARGE * FLOAT // 8),
        Seconds(
            "ceil(lg p) (alpha + n/beta), and up to 5 % more: you may post all sends of a rank at once",
            "In each round all ranks that have the numbers should send, each one message. A rank that sends several at "
            "once shares its link among them",
            room=1.05,
        ),
    ],
    mistakes=[
        mistake("These are the numbers of rank 0: count the ranks from src", "(rank - src) % p", "rank"),
        mistake(
            "Not every rank that has the numbers has somebody to send to: look whether me + distance is below p",
            "me < distance and me + distance < p",
            "me < distance",
        ),
        mistake(
            "The last round is missing: it goes on until distance is p or more, and p need not be a power of two",
            "while distance < p:",
            "while 2 * distance <= p:",
        ),
        mistake(
            "Each round sends twice as far as the one before, so distance doubles",
            "distance *= 2",
            "distance += 1",
        ),
    ],
    hints=[
        "After k rounds 2^k ranks have the numbers. In round k each of them sends to one that has not.",
        "Count the ranks from src: with me = (rank - src) % p, the ranks 0 to distance-1 have the numbers, and "
        "distance is 1, 2, 4, ...",
        "me sends to me + distance, unless that is p or more. Who receives? Those with distance <= me < 2 * distance, "
        "from me - distance. Counting from src and back: (rank + distance) % p and (rank - distance) % p.",
    ],
    why="A tree reaches 1,024 ranks in 10 rounds, where a star needs 1,023: latency grows with the logarithm. NCCL "
    "and MPI use trees for small tensors, where latency is all that counts, and rings for large ones.",
)
def tree_broadcast(tensor, src):
    """Broadcast ``tensor`` from rank ``src`` to all ranks, in place, along a binomial tree.

    Binomial: in each round, every rank that has the numbers sends them to one that has not, so they double in number.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - src) % p  # the place of this rank, counted from src
    distance = 1
    while distance < p:
        # ? Places 0 to distance - 1 have the numbers. Who sends to whom in this round?
        if me < distance and me + distance < p:
            dist.send(tensor, (rank + distance) % p)
        elif distance <= me < 2 * distance:
            dist.recv(tensor, (rank - distance) % p)
        # .
        distance *= 2
