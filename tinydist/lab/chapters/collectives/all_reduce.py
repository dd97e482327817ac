"""All-reduce on a ring: a reduce-scatter, then an all-gather. What is judged is the same for the one with bugs."""

import torch.distributed as dist

from ...exercise import exercise
from ...messages import by_hand, sends_at_most, sends_bytes, to_the_right
from ...own_work import Watched
from ...ranks import Trials
from ...seconds import steps_seconds, takes_at_most
from ...sums import SUMS
from ...values import in_place
from ...verdict import Property
from .inputs import even, full, large, nbytes, part_bytes, sum_cases
from .reduce_scatter import two_parts

TARGETS = {
    "values": "the sum, in the tensor itself, on 1, 2, 3, 4 and 8 ranks; uneven parts, and fewer numbers than ranks",
    "bytes": "each rank sends 2(p-1)/p n; if the parts are uneven, 2(p-1) n in all",
    "messages": "2(p-1) of each rank, to its right neighbor only",
    "memory": "two parts besides the tensor",
    "time": "2(p-1) (alpha + n/(p beta))",
}


def the_sum(inputs):
    return [sum(inputs)] * len(inputs)


def properties(answer):
    trials = Trials(Watched(answer), sum_cases(the_sum), in_its_tensor)
    yield Property("runs", "it ends on 1, 2, 3, 4 and 8 ranks without an error", trials.end)
    yield Property("values", "every rank has the sum, in its tensor", trials.each(in_its_tensor))
    yield Property("by hand", "nothing but messages, each received and waited for", trials.each(by_hand))
    yield Property("bytes", "each rank sends 2(p-1)/p n", trials.each(twice_all_but_a_part))
    yield Property("ring", "each rank sends to its right neighbor only", trials.each(to_the_right))
    yield Property("messages", "2(p-1) of each rank", trials.each(one_a_step))
    yield Property("memory", "two parts besides the tensor", trials.each(two_parts, large))
    yield Property("time", "2(p-1) (alpha + n/(p beta))", trials.each(in_steps, large))


def in_its_tensor(trial):
    in_place(trial, SUMS)


def twice_all_but_a_part(trial):
    n, p = nbytes(trial.case), trial.case.ranks
    whole = 2 * (p - 1) * n
    each = [whole // p] * p if even(trial.case) else whole
    sends_bytes(trial, each, "2(p-1)/p n of each rank, 2(p-1) n in all", whole=n)


def one_a_step(trial):
    most = 2 * (trial.case.ranks - 1)
    sends_at_most(trial, most, whole=most * trial.case.ranks if full(trial.case) else None)


def in_steps(trial):
    takes_at_most(
        trial,
        steps_seconds(2 * (trial.case.ranks - 1), max(part_bytes(trial.case))),
        "a ring takes 2(p-1) (alpha + n/(p beta))",
        "In each step all ranks should send and receive at the same time: isend and irecv, or batch_isend_irecv",
    )


@exercise(
    chapter="02_collectives",
    title="All-reduce on a ring",
    minutes=20,
    difficulty=3,
    targets=TARGETS,
    hints=[
        "A reduce-scatter leaves each rank with one part of the sum. What has to go round then, so that all have all?",
        "The second half is an all-gather: finished parts go round, and they are copied where they arrive, not added.",
        "If rank r has part r of the sum, then in step s of the second half a rank sends part (rank - s) % p, and "
        "part (rank - 1 - s) % p arrives.",
        "The first half is that of ring_reduce_scatter, added in place: parts of tensor_split are views, so what you "
        "add to them is added to the tensor. In the second half receive into parts[(rank - 1 - step) % p] itself.",
    ],
    why="A ring all-reduce sends 2(p-1)/p n a rank: less than two tensors, on 8 ranks or on 8,000. It is what sums "
    "the gradients of data parallel training wherever tensors are large.",
    check=properties,
)
def ring_all_reduce(tensor):
    """Replace ``tensor`` on every rank by the sum of all ranks' tensors, in place, on a ring.

    Cut it into p parts, as ``tensor.tensor_split(p)`` does, and pass them to the right: first until each is summed,
    then until all ranks have all.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % p, (rank - 1) % p
    parts = tensor.tensor_split(p)  # views: what is written into them is written into the tensor
    for step in range(p - 1):
        # Reduce-scatter: add what arrives.
        raise NotImplementedError
    for step in range(p - 1):
        # All-gather: keep what arrives.
        raise NotImplementedError
