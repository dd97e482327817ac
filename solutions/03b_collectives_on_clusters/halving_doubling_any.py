"""All-reduce by halving and doubling on any number of ranks: those left over hand their tensors to a neighbor.

Source: MPICH, src/mpi/coll/allreduce/allreduce_intra_reduce_scatter_allgather.c.
"""

import torch
import torch.distributed as dist

from tinydist.lab.author import (
    Bytes,
    Case,
    Memory,
    Messages,
    Own,
    Seconds,
    Values,
    Waits,
    exercise,
    mistake,
    of_sums,
)

from .chapter import BY_HAND, FLOAT, LARGE, SOLVED, TWO_BY_FOUR, numbers

LONG = 16 * LARGE  # numbers: bytes, and not latency, set the time
GIVEN_BACK = "        dist.recv(tensor, rank + 1)\n"
GIVES_BACK = "    if rank < 2 * left_over:\n        dist.send(tensor, rank - 1)"
WAY_BACK = "        exchange(kept, given, partner)\n"
UPPER = "        if place & distance:\n            kept, given = given, kept\n"


def case(ranks, *shape, dtype=torch.float32, measured=False, changed=None, **how):
    about = f"{' x '.join(map(str, shape))} numbers each" + (", in another order of events" if how else "")
    if changed is not None:
        about += f", and those that rank {changed} sends changed on the way"
    return Case(ranks, lambda rank: (numbers(rank, shape, dtype),), about, measured, changed, how=how)


def test_cases():
    for ranks, count in [(2, 8), (4, 16), (3, 8), (6, 16), (5, 13), (7, 9), (8, 3), (3, 1), (1, 4)]:
        yield case(ranks, count)
    yield case(3, 5, 3, dtype=torch.float64)
    yield case(6, 9, dtype=torch.int64)
    yield case(6, 10, schedule="shuffle", seed=1)
    yield case(3, 8, changed=0)  # it is left over: its numbers travel whole, and once
    for ranks in (8, 6):
        yield case(ranks, LONG, measured=True)


@exercise(
    title="Halving and doubling on any number of ranks",
    minutes=30,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        Values(
            "the sum, in the tensor itself, on 1 to 8 ranks; halves of unequal size, and fewer numbers than ranks",
            explain=of_sums,
        ),
        Own("nothing but messages", BY_HAND, SOLVED, only=["message"]),
        Waits("each message is received and waited for"),
        Messages("from an even rank that is left over to its right neighbor, and back; two to each partner"),
        Bytes("2(P-1) n in all, and 2 n more for each rank that is left over", together=True),
        Seconds(
            "in 2 nodes of 4 ranks: the half and the quarter go inside a node, and only the eighth between the two",
            "The exchanges get smaller: which of them should go to the farthest partner, the first or the last?",
            room=1.05,
            clusters=lambda case: [TWO_BY_FOUR],
        ),
        Memory(
            "what arrives: at most the tensor once more, or twice with a neighbor that is left over",
            most=lambda case: (1 + (case.ranks & (case.ranks - 1) > 0)) * LONG * FLOAT + LONG * FLOAT // 4,
        ),
    ],
    mistakes=[
        mistake("Both partners keep the same half: the one with the higher place keeps the second", UPPER, ""),
        mistake(
            "The way back is missing: each of the P ranks has finished one piece, and lacks those of the others",
            WAY_BACK,
            "        pass\n",
        ),
        mistake(
            "The way back goes to the same partners in the opposite order: the last one first",
            "reversed(steps)",
            "steps",
        ),
        mistake(
            "The ranks that are left over have handed their numbers in, and do not get the sum",
            GIVEN_BACK,
            "",
            GIVES_BACK,
            "    pass",
        ),
        mistake(
            "Partners are found by places, and messages go to ranks: of 6 ranks, place 1 is rank 3",
            "staying[place ^ distance]",
            "place ^ distance",
        ),
        mistake(
            "Whole tensors are exchanged, as in recursive doubling: here each exchange has half of what the one "
            "before had",
            "kept, given = piece.tensor_split(2)",
            "kept, given = piece, piece",
            "reversed(steps)",
            "[]",
        ),
        mistake(
            "Ranks beyond the power of 2 hand their tensors to rank - P, which may be in another node. Here neighbors "
            "do it: of the first 2 (p - P) ranks each even one to the odd one after it",
            "[other for other in range(p) if other % 2 or other >= 2 * left_over]",
            "list(range(power))",
            "rank + 1",
            "rank - power",
            "rank - 1",
            "rank + power",
            "rank < 2 * left_over",
            "rank < left_over",
        ),
        mistake(
            "The first exchange is the largest, and it goes to the farthest partner, in another node: the nearest "
            "first",
            "    distance = 1\n",
            "    distance = power // 2\n",
            "distance < power",
            "distance",
            "distance *= 2",
            "distance //= 2",
        ),
    ],
    hints=[
        "Forget the ranks that are left over: what is it on 4 ranks? Then let them hand over their tensors before, and "
        "get the sum after.",
        "List the ranks that take part: all odd ones, and the even ones from 2 (p - P) on. The place of a rank is its "
        "index in this list.",
        "At each distance 1, 2, 4, ... below P the partner has the place place ^ distance. Of the two halves the lower "
        "place keeps the first; both send the other one, and add. Remember (partner, kept, given) for the way back.",
        "tensor_split(2) also cuts an odd number of numbers, and a single one, in the same way on both partners. On "
        "the way back what you kept goes out, and comes in what you gave.",
    ],
    why="A ring's bytes in few steps: this is how MPICH all-reduces long messages, with the same neighbors. Those left "
    "over cost 2 (alpha + n/beta) more, so for large tensors a ring, which takes any number of ranks as they are, is "
    "faster on 6 ranks.",
)
def halving_doubling_any(tensor):
    """All-reduce ``tensor``, in place, by recursive halving and doubling, on any number p of ranks.

    P is the largest power of 2 that is not above p. Of the first 2 (p - P) ranks, each even one hands its tensor to its
    right neighbor, takes no part, and gets the sum from it at the end. The P others do as in the notebook, the nearest
    partner first. Their places 0 to P - 1, in the order of their ranks, say who the partners are: of 6 ranks, 0 hands
    over to 1 and 2 to 3, and ranks 1, 3, 4 and 5 have the places 0 to 3. Tensors are cut along their first dimension.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    power = 1 << (p.bit_length() - 1)  # P
    left_over = p - power

    def exchange(outgoing, incoming, partner):
        both = [dist.P2POp(dist.isend, outgoing, partner), dist.P2POp(dist.irecv, incoming, partner)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    # ? Who hands over to whom? Which place does this rank have among those that take part?
    # ? Halves to the partners, the nearest first; and all the way back
    # ? Who gets the sum from whom?
    staying = [other for other in range(p) if other % 2 or other >= 2 * left_over]
    if rank not in staying:
        dist.send(tensor, rank + 1)
        dist.recv(tensor, rank + 1)
        return
    if rank < 2 * left_over:
        arrived = torch.empty_like(tensor)
        dist.recv(arrived, rank - 1)
        tensor += arrived

    place, piece, steps = staying.index(rank), tensor, []
    distance = 1
    while distance < power:
        partner = staying[place ^ distance]
        kept, given = piece.tensor_split(2)
        if place & distance:
            kept, given = given, kept
        arrived = torch.empty_like(kept)
        exchange(given, arrived, partner)
        kept += arrived
        steps.append((partner, kept, given))
        piece = kept
        distance *= 2
    for partner, kept, given in reversed(steps):
        exchange(kept, given, partner)
    if rank < 2 * left_over:
        dist.send(tensor, rank - 1)
