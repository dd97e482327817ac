"""Reduce-scatter on a ring that turns to the left, where each rank keeps a part that the task chooses."""

import itertools

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Memory, Messages, Own, Seconds, Values, Waits, exercise, mistake
from tinydist.lab.differences import close
from tinydist.rules import ranks_in_words

from .chapter import BY_HAND, LARGE, SOLVED, largest_part, numbers


def case(ranks, shift, *shape, dtype=torch.float32, measured=False, **how):
    about = f"shift={shift}, {' x '.join(map(str, shape))} numbers each" + (
        ", in another order of events" if how else ""
    )
    return Case(ranks, lambda rank: (numbers(rank, shape, dtype), shift), about, measured, facts=shift, how=how)


def test_cases():
    for ranks, shift, count in [
        (7, 2, 21),  # the parts r, r + shift - 1, r + shift + 1 and r - shift are different ones
        (3, 1, 12),
        (3, 0, 13),
        (2, 1, 9),
        (2, 0, 8),
        (3, 2, 2),
        (4, 1, 18),
        (4, 3, 16),
        (8, 5, 36),
        (8, 1, 3),
        (1, 0, 4),
        (1, 1, 5),
    ]:
        yield case(ranks, shift, count)
    yield case(3, 1, 5, 3, dtype=torch.float64)
    yield case(4, 2, 10, dtype=torch.int64)
    yield case(4, 1, 10, schedule="shuffle", seed=1)
    for ranks in (4, 8):
        yield case(ranks, 1, LARGE, measured=True)


def which_part(trial, got, want, own, pick):
    """A part of the sum, and not the one that is asked for; or no sum at all."""
    p, shift = trial.case.ranks, trial.case.facts
    for rank, mine in enumerate(got):
        tensor = trial.case.arguments(rank)[0]
        if len(mine) and torch.equal(mine, tensor.tensor_split(p)[(rank + shift) % p]):
            return f"rank {rank} returns its own numbers: nothing was added"
        same = [other for other, part in enumerate(want) if mine.shape == part.shape and torch.allclose(mine, part)]
        if len(mine) and same and rank not in same:
            has, wants = (same[0] + shift) % p, (rank + shift) % p
            return f"rank {rank} returns part {has} of the sum, where part {wants} is asked for: where does it end?"
        for part in range(p):
            pieces = [trial.case.arguments(other)[0].tensor_split(p)[part] for other in range(p)]
            for first, count in itertools.product(range(p), range(1, p)):
                some = [(first + hop) % p for hop in range(count)]
                if len(mine) and mine.shape == pieces[0].shape and close(mine, sum(pieces[each] for each in some)):
                    in_it = f"rank {rank} returns part {part}, in which are the numbers of {ranks_in_words(some)} alone"
                    return f"{in_it}. Part {(rank + shift) % p} is asked for, and those of all ranks"
    return None


@exercise(
    title="A reduce-scatter the other way round",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Values(
            "rank r returns part (r + shift) % p of the sum, on 1 to 8 ranks, for several shifts; uneven and "
            "empty parts",
            scratch=True,
            explain=(which_part,),
        ),
        Own("nothing but messages", BY_HAND, SOLVED, only=["message"]),
        Waits("each message is received and waited for"),
        Messages("p-1 of each rank, to its left neighbor only"),
        Bytes(
            "each rank sends n - the part that it returns: (p-1)/p n if the parts are even",
            "each rank sends n - the part that it returns. Where parts are uneven, the shorter ones are sent as they "
            "are, and not padded",
        ),
        Memory(
            "two parts besides the tensor: what arrives, and what is sent meanwhile. Work on the tensor itself, and "
            "add in place",
            slack=largest_part,
        ),
        Seconds(
            "p-1 steps, each as long as a message of the largest part takes",
            "In each step all ranks should send and receive at the same time: isend and irecv, or batch_isend_irecv",
        ),
    ],
    mistakes=[
        mistake(
            "These are the indices of a ring that turns to the right: to the left, the number of the part grows with "
            "each step",
            "(rank + 1 + shift + step)",
            "(rank - 1 + shift - step)",
            "(rank + 2 + shift + step)",
            "(rank - 2 + shift - step)",
        ),
        mistake(
            "This is the ring of the notebook: it turns to the right, and part r ends on rank r. Here it turns to the "
            "left, and part r + shift ends there",
            "(rank + 1 + shift + step)",
            "(rank - 1 - step)",
            "(rank + 2 + shift + step)",
            "(rank - 2 - step)",
            "leaves, left)",
            "leaves, right)",
            "arrived, right)",
            "arrived, left)",
        ),
        mistake(
            "Parts go to the right, and the task asks for the left",
            "(rank + 1 + shift + step)",
            "(rank - 1 + shift - step)",
            "(rank + 2 + shift + step)",
            "(rank - 2 + shift - step)",
            "leaves, left)",
            "leaves, right)",
            "arrived, right)",
            "arrived, left)",
        ),
        mistake(
            "The part that you return is not the one that has been summed: its way must end on the rank that returns "
            "it, so the shift also belongs into the index of the first part",
            "(rank + 1 + shift + step)",
            "(rank + 1 + step)",
            "(rank + 2 + shift + step)",
            "(rank + 2 + step)",
        ),
        mistake("Rank r returns part r + shift, and you return part r - shift", "+ shift", "- shift"),
        mistake(
            "The part that you return lacks its last hop, or starts on the rank that is to return it: it must start on "
            "the rank to the left of its owner, and makes p - 1 hops",
            "(rank + 1 + shift + step)",
            "(rank + shift + step)",
            "(rank + 2 + shift + step)",
            "(rank + 1 + shift + step)",
        ),
        mistake(
            "The parts go round as they should, and another one is returned", "parts[(rank + shift) % p]", "parts[rank]"
        ),
        mistake("What arrives is not added to your own numbers", "grows += arrived", "grows.copy_(arrived)"),
    ],
    hints=[
        "Follow one part, and forget the others: on which rank must it end? It moves to the left, and visits all "
        "ranks. On which rank does it start?",
        "It starts on the rank to the left of its owner, for then its last hop ends on the owner. Rank r owns part "
        "r + shift. So which part does rank r send first?",
        "Rank r sends part r + 1 + shift first, which its right neighbor owns. In each step the number grows by one, "
        "because what has just been added to leaves next.",
    ],
    why="An index is not a formula to be remembered. It answers a question: where must this part start, to end there? "
    "Libraries differ in the direction and in who ends with which part, and whoever reads them asks this.",
)
def left_reduce_scatter(tensor, shift):
    """Return part (rank + shift) % p of the sum of all ranks' tensors, of the p parts of ``tensor.tensor_split(p)``.

    Pass parts round the ring, to the left. ``tensor`` may be overwritten.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % p, (rank - 1) % p
    parts = tensor.tensor_split(p)
    for step in range(p - 1):
        # ? Which part goes to the left, and which arrives from the right? Send and receive at the same time.
        leaves = parts[(rank + 1 + shift + step) % p]
        grows = parts[(rank + 2 + shift + step) % p]
        arrived = torch.empty_like(grows)
        both = [dist.P2POp(dist.isend, leaves, left), dist.P2POp(dist.irecv, arrived, right)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        grows += arrived
        # .
    return parts[(rank + shift) % p]
