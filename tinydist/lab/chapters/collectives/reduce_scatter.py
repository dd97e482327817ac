"""Reduce-scatter on a ring: each part goes round once, and every rank adds its numbers to it."""

import torch.distributed as dist

from ...exercise import exercise
from ...memory import holds_at_most
from ...messages import by_hand, sends_at_most, sends_bytes, to_the_right
from ...own_work import Watched
from ...ranks import Trials
from ...seconds import steps_seconds, takes_at_most
from ...sums import SUMS
from ...values import returned
from ...verdict import Property
from .inputs import full, large, nbytes, part_bytes, sum_cases


def parts_of_the_sum(inputs):
    return list(sum(inputs).tensor_split(len(inputs)))


def properties(answer):
    trials = Trials(Watched(answer), sum_cases(parts_of_the_sum), own_part)
    yield Property("runs", "it ends on 1, 2, 3, 4 and 8 ranks without an error", trials.end)
    yield Property("values", "rank r returns part r of the sum", trials.each(own_part))
    yield Property("by hand", "nothing but messages, each received and waited for", trials.each(by_hand))
    yield Property("bytes", "each rank sends n - its part", trials.each(all_but_its_part))
    yield Property("ring", "each rank sends to its right neighbor only", trials.each(to_the_right))
    yield Property("messages", "p-1 of each rank", trials.each(one_a_step))
    yield Property("memory", "two parts besides the tensor", trials.each(two_parts, large))
    yield Property("time", "(p-1) (alpha + n/(p beta))", trials.each(in_steps, large))


def own_part(trial):
    returned(trial, SUMS)


def all_but_its_part(trial):
    n = nbytes(trial.case)
    sends_bytes(
        trial, [n - part for part in part_bytes(trial.case)], "n - its part, (p-1)/p n if they are even", whole=n
    )


def one_a_step(trial):
    p = trial.case.ranks
    sends_at_most(trial, p - 1, whole=p * (p - 1) if full(trial.case) else None)


def two_parts(trial):
    words = "what arrives, and what is sent meanwhile. Work on the tensor itself, and add in place: parts[i] += arrived"
    holds_at_most(trial, 2 * max(part_bytes(trial.case)), words)


def in_steps(trial):
    takes_at_most(
        trial,
        steps_seconds(trial.case.ranks - 1, max(part_bytes(trial.case))),
        "a ring takes (p-1) (alpha + n/(p beta))",
        "In each step all ranks should send and receive at the same time: isend and irecv, or batch_isend_irecv",
    )


@exercise(
    chapter="02_collectives",
    title="Reduce-scatter on a ring",
    minutes=25,
    difficulty=3,
    targets={
        "values": (
            "rank r returns part r (of tensor_split) of the sum, on 1, 2, 3, 4 and 8 ranks; uneven and empty parts"
        ),
        "bytes": "each rank sends n - its part: (p-1)/p n if the parts are even",
        "messages": "p-1 of each rank, to its right neighbor only",
        "memory": "two parts besides the tensor",
        "time": "(p-1) (alpha + n/(p beta))",
    },
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
    check=properties,
)
def ring_reduce_scatter(tensor):
    """Return this rank's part of the sum of all ranks' tensors: rank r returns part r of ``tensor.tensor_split(p)``.

    Pass parts round the ring, to the right. ``tensor`` may be overwritten.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % p, (rank - 1) % p
    parts = list(tensor.tensor_split(p))
    for step in range(p - 1):
        # Which part goes to the right, and which arrives from the left? Send and receive at the same time.
        raise NotImplementedError
    return parts[rank]
