"""Reduce along a chain, in chunks: a rank passes the sum of a chunk on while the next chunk arrives."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Memory, Messages, Own, Seconds, Values, Waits, exercise, mistake

from .chapter import BY_HAND, FLOAT, LARGE, SOLVED, numbers


def case(ranks, chunks, count, dtype=torch.float32, measured=False, changed=None, **how):
    about = f"{chunks} chunk{'s' * (chunks > 1)} of {count} numbers" + (", in another order of events" if how else "")
    if changed is not None:
        about += f", and those that rank {changed} sends changed on the way"
    return Case(ranks, lambda rank: (numbers(rank, (count,), dtype), chunks), about, measured, changed, how=how)


def test_cases():
    for ranks, chunks, count in [(2, 1, 6), (2, 4, 8), (3, 2, 7), (4, 4, 16), (5, 3, 13), (4, 6, 3), (1, 3, 5)]:
        yield case(ranks, chunks, count)
    yield case(3, 2, 5, dtype=torch.float64)
    yield case(4, 5, 9, dtype=torch.int64)
    yield case(4, 3, 10, schedule="shuffle", seed=1)
    yield case(4, 2, 8, changed=3)
    for ranks in (4, 8):
        yield case(ranks, 8, LARGE, measured=True)


class OnRank0(Values):
    """The others' tensors may hold anything."""

    def seen(self, trial):
        return None if trial.error is not None else {(0, ""): trial.arguments[0][0]}


@exercise(
    title="Reduce along a chain, in chunks",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Waits("each message is received and waited for"),
        OnRank0(
            "on 1 to 5 ranks rank 0 has the sum, in the tensor itself; uneven chunks, and more chunks than numbers"
        ),
        Own("nothing but messages", BY_HAND, SOLVED, only=["message"]),
        Bytes("(p-1) n in all", together=True),
        Messages(
            "one for each chunk, from each rank to its left neighbor; of a chunk without numbers none is needed, nor "
            "wrong",
            empty=False,
        ),
        Memory("one chunk besides: what arrives", slack=LARGE * FLOAT // 8),
        Seconds(
            "(p - 2 + m) (alpha + n/(m beta)) with m chunks, here 8",
            "While a chunk is on its way from a rank, the next one should be arriving there",
            room=1.05,
        ),
    ],
    mistakes=[
        mistake(
            "What arrives is not added to what stands there",
            "total += arrived[: len(total)]",
            "total.copy_(arrived[: len(total)])",
        ),
        mistake(
            "The last chunks never come: the first one needs p - 1 steps to rank 0, and each of the others one step "
            "more",
            "range(p - 2 + chunks)",
            "range(p - 1)",
        ),
        mistake(
            "The numbers of rank 2 and of all ranks after it are missing: add what arrives before you send it on. A "
            "chunk can leave one step after it has come, not in the same step",
            "leaves, comes = step - place, step - place + 1",
            "leaves, comes = step - place + (place > 0), step - place + 1",
        ),
        mistake(
            "Nothing is added in the tensor of rank 0: the sum has to stand in the tensor itself, with +=",
            "total += arrived[: len(total)]",
            "total = total + arrived[: len(total)]",
        ),
    ],
    hints=[
        "It is the chain of the notebook, the other way round: the last rank begins, and rank 0 only receives. What "
        "does a "
        "rank do with a chunk between its arrival and its departure?",
        "Let place = p - 1 - rank count the ranks from the last one. In step s place 0 sends chunk s, place 1 chunk "
        "s - 1, "
        "and so on. Which chunk arrives meanwhile?",
        "In step s a rank sends chunk s - place, if there is one, and receives chunk s - place + 1, both at once, by "
        "batch_isend_irecv. It adds what has arrived before the next step begins.",
    ],
    why="NCCL's reduce is this chain, and its trees travel in the same way. With enough chunks a further rank costs "
    "one "
    "more step of one chunk, and not another n/beta.",
)
def chain_reduce(tensor, chunks):
    """Add up all ranks' tensors on rank 0, in place, along a chain: rank p-1 sends to p-2, that to p-3, and so on to 0.

    ``tensor`` is a row of numbers. It travels in ``chunks`` parts, ``tensor.tensor_split(chunks)``: while a rank sends
    one of them, the next one arrives. Only rank 0 needs the sum: the tensors of the others may be overwritten.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    place = p - 1 - rank  # counted from the end where the chain begins
    parts = tensor.tensor_split(chunks)
    arrived = torch.empty_like(parts[0])  # the longest
    for step in range(p - 2 + chunks):
        # ? What leaves in this step, and what arrives? What is added?
        leaves, comes = step - place, step - place + 1
        sends = rank > 0 and 0 <= leaves < chunks
        receives = rank < p - 1 and 0 <= comes < chunks
        messages = []
        if sends:
            messages.append(dist.P2POp(dist.isend, parts[leaves], rank - 1))
        if receives:
            messages.append(dist.P2POp(dist.irecv, arrived[: len(parts[comes])], rank + 1))
        for work in dist.batch_isend_irecv(messages) if messages else []:
            work.wait()
        if receives:
            total = parts[comes]
            total += arrived[: len(total)]
        # .
