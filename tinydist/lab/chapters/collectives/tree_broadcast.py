"""Broadcast along a binomial tree: each round doubles the ranks that have the numbers."""

from collections import Counter

import torch.distributed as dist

from ...errors import Wrong
from ...exercise import exercise
from ...memory import holds_at_most
from ...messages import by_hand, left_open, messages, sends_at_most, sends_bytes
from ...own_work import Watched
from ...ranks import Case, Trials
from ...seconds import ROOM, steps_seconds, takes_at_most
from ...values import close, in_place
from ...verdict import Property
from .inputs import LARGE, about, large, nbytes, numbers

SHAPE = (5,)


def rounds(ranks):
    """ceil(lg p)."""
    return (ranks - 1).bit_length()


def case(ranks, src, shape=SHAPE, **how):
    words = f"src={src}, {about(shape)}" + (", in another order of events" if how else "")
    expected = [numbers(src, shape)] * ranks
    return Case(ranks, lambda rank: (numbers(rank, shape), src), words, expected, how)


def cases():
    for ranks in range(1, 10):
        for src in range(ranks):
            yield case(ranks, src)
    yield case(3, 1, (2, 3))
    yield case(4, 0, (0,))
    yield case(6, 2, schedule="shuffle", seed=1)
    for ranks in (4, 5, 8):
        yield case(ranks, 1, (LARGE,))


def whose(trial, got, expected, pick):
    """Whose numbers a rank has that should have those of src."""
    src = trial.case.arguments(0)[1]
    inputs = [trial.case.arguments(rank)[0] for rank in range(trial.case.ranks)]
    wrong = [rank for rank, mine in enumerate(got) if not close(mine, expected[rank])]
    for rank in wrong:
        owners = [owner for owner, theirs in enumerate(inputs) if owner != rank and close(got[rank], theirs)]
        if owners:
            return f"rank {rank} has the numbers of rank {owners[0]}, where those of src, rank {src}, are right"
    if close(got[wrong[0]], inputs[wrong[0]]):
        return f"rank {wrong[0]} still has its own numbers: nothing has reached it from rank {src}"
    return None


def of_src(trial):
    in_place(trial, [left_open, whose])


def is_tree(trial):
    p, src = trial.case.ranks, trial.case.arguments(0)[1]
    received = Counter(message.ranks[1] for message in messages(trial.run))
    if received[src]:
        raise Wrong(f"rank {src} is src, and yet it receives: it has the numbers already")
    for rank, count in sorted(received.items()):
        if count > 1:
            raise Wrong(f"rank {rank} receives {count} messages, where one with the whole tensor is enough")
    sends_at_most(trial, rounds(p), whole=p - 1)


def properties(answer):
    trials = Trials(Watched(answer), cases(), of_src)
    yield Property("runs", "it ends on 1 to 9 ranks, for every src, without an error", trials.end)
    yield Property("values", "every rank has the numbers of src", trials.each(of_src))
    yield Property("by hand", "nothing but messages, each received and waited for", trials.each(by_hand))
    yield Property(
        "bytes",
        "(p-1) n in all",
        trials.each(lambda t: sends_bytes(t, (t.case.ranks - 1) * nbytes(t.case), "(p-1) n")),
    )
    yield Property("messages", "p-1 in all, and no rank sends more than ceil(lg p)", trials.each(is_tree))
    yield Property("memory", "nothing besides the tensor", trials.each(holds_nothing, large))
    yield Property("time", "ceil(lg p) (alpha + n/beta), and up to 5 % more", trials.each(in_rounds, large))


def holds_nothing(trial):
    holds_at_most(trial, nbytes(trial.case) // 8, "receive into the tensor itself")


def in_rounds(trial):
    takes_at_most(
        trial,
        steps_seconds(rounds(trial.case.ranks), nbytes(trial.case)),
        "a tree takes ceil(lg p) (alpha + n/beta)",
        "In each round all ranks that have the numbers should send, each one message. A rank that sends several at "
        "once shares its link among them",
        ROOM,
    )


@exercise(
    chapter="02_collectives",
    title="Broadcast along a tree",
    minutes=20,
    difficulty=2,
    targets={
        "values": "on 1 to 9 ranks, for every src, all ranks have the numbers of src, in the tensor itself",
        "messages": "p-1 in all; no rank sends more than ceil(lg p): 3 on 8 ranks, where a star sends 7",
        "memory": "nothing besides the tensor",
        "time": "ceil(lg p) (alpha + n/beta), and up to 5 % more: you may post all sends of a rank at once",
    },
    hints=[
        "After k rounds 2^k ranks have the numbers. In round k each of them sends to one that has not.",
        "Count the ranks from src: with me = (rank - src) % p, the ranks 0 to distance-1 have the numbers, and "
        "distance is 1, 2, 4, ...",
        "me sends to me + distance, unless that is p or more. Who receives? Those with distance <= me < 2 * distance, "
        "from me - distance. Counting from src and back: (rank + distance) % p and (rank - distance) % p.",
        "if me < distance and me + distance < p: dist.send(tensor, (rank + distance) % p), and the same way, in an "
        "elif, dist.recv(tensor, (rank - distance) % p).",
    ],
    why="A tree reaches 1,024 ranks in 10 rounds, where a star needs 1,023: latency grows with the logarithm. NCCL "
    "and MPI use trees for small tensors, where latency is all that counts, and rings for large ones.",
    check=properties,
)
def tree_broadcast(tensor, src):
    """Broadcast ``tensor`` from rank ``src`` to all ranks, in place, along a binomial tree.

    Binomial: in each round, every rank that has the numbers sends them to one that has not, so they double in number.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - src) % p  # the place of this rank, counted from src
    distance = 1
    while distance < p:
        # Places 0 to distance - 1 have the numbers. Who sends to whom in this round?
        raise NotImplementedError
        distance *= 2
