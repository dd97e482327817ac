"""All-reduce of many tensors with the messages of one: as a row, which goes round the ring in parts."""

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
    Wrong,
    also,
    exercise,
    mistake,
    of_sums,
)

from .chapter import BY_HAND, FLOAT, LARGE, SOLVED, numbers

ROW = "torch.cat([tensor.view(-1) for tensor in tensors])"
BACK = "tensor.copy_(piece.view_as(tensor))"


def case(ranks, *shapes, dtype=torch.float32, measured=False, **how):
    about = f"tensors of {', '.join(' x '.join(map(str, shape)) for shape in shapes)} numbers"
    about += ", in another order of events" if how else ""
    return Case(
        ranks,
        lambda rank: tuple(numbers(10 * rank + i, shape, dtype) for i, shape in enumerate(shapes)),
        about,
        measured,
        facts=sum(torch.Size(shape).numel() for shape in shapes),
        how=how,
    )


def test_cases():
    yield case(4, (4,), (10,), (6,))
    yield case(3, (5,), (1,), (7,))
    yield case(3, (3, 4), (2,), (5, 2))
    yield case(2, (64,))
    yield case(2, (3, 3), (1,))
    yield case(4, (1,), (1,))
    yield case(8, (100,), (3,), (28,), (2, 2))
    yield case(3, (2, 5), (4,), dtype=torch.float64)
    yield case(1, (4,), (2, 3))
    yield case(4, (5,), (1,), (7,), schedule="shuffle", seed=1)
    for ranks in (4, 8):
        yield case(ranks, (LARGE // 64, 32), (LARGE // 4,), (LARGE // 4,), measured=True)


def uneven(case):
    return case.facts % case.ranks > 0


class Each(Values):
    """The tensors have numbers, also where there is one."""

    def seen(self, trial):
        found = super().seen(trial)
        return found and {(rank, f"tensor {path.strip('[]') or 0}"): each for (rank, path), each in found.items()}


def in_themselves(answer, *tensors):
    places = [tensor.data_ptr() for tensor in tensors]
    returned = answer(list(tensors))
    for number, (tensor, place) in enumerate(zip(tensors, places)):
        if tensor.data_ptr() != place:
            raise Wrong(
                f"on rank {dist.get_rank()} tensor {number} has got other memory (.data): who holds a view of it still "
                "sees the old numbers. Write into it, with copy_"
            )
    return returned


@exercise(
    title="One ring for many tensors",
    minutes=25,
    difficulty=3,
    program=in_themselves,
    test_cases=test_cases,
    targets=[
        Each(
            "each tensor of the list becomes the sum, in itself and in its shape, on 1, 2, 3, 4 and 8 ranks; some are "
            "smaller than p",
            explain=of_sums[:1],
        ),
        Own("nothing but messages", BY_HAND, SOLVED, only=["message"]),
        Waits("each message is received and waited for"),
        Bytes(
            "each rank sends 2(p-1)/p of all tensors together; if the parts are uneven, 2(p-1) times them in all",
            together=uneven,
        ),
        Messages("2(p-1) of each rank, to its right neighbor only, however many tensors there are"),
        Memory(
            "all numbers once more, as a row, and two parts of it",
            slack=lambda case: FLOAT * case.facts // case.ranks,
        ),
        Seconds(
            "2(p-1) steps, each as long as a message of the largest part takes",
            "In each step all ranks should send and receive at the same time: isend and irecv, or batch_isend_irecv",
        ),
    ],
    mistakes=[
        mistake(
            "A ring for each tensor: one ring, for all of them as a row, needs fewer messages",
            "    row = " + ROW,
            "    if len(tensors) > 1:\n        for each in tensors:\n            all_reduce_many([each])\n"
            "        return\n    row = " + ROW,
        ),
        mistake(
            "The tensors of the list are unchanged: the sum stands in the row. Write it into them with copy_: to give "
            "a name another tensor is not enough",
            BACK,
            "tensor = piece.view_as(tensor)",
        ),
        mistake(
            "Only the first tensor is summed: the row should hold all of them",
            ROW,
            "tensors[0].view(-1)",
            "sizes = [tensor.numel() for tensor in tensors]",
            "sizes = [tensors[0].numel()]",
        ),
        mistake(
            "The tensors are of different sizes: cut the row where each ends",
            "row.split(sizes)",
            "row.tensor_split(len(tensors))",
        ),
        mistake(
            "Each tensor takes the beginning of the row: the second one begins where the first ends",
            "zip(tensors, row.split(sizes))",
            "zip(tensors, [row[:size] for size in sizes])",
        ),
        mistake(
            "The first half starts with the rank's own part, and so finishes it one rank too early; the second half "
            "starts as if every rank had finished its own",
            "parts[(rank - 2 - step) % p]",
            "parts[(rank - 1 - step) % p]",
            "pass_right(parts[(rank - 1 - step) % p], arrived)",
            "pass_right(parts[(rank - step) % p], arrived)",
        ),
        mistake(
            "More bytes than the numbers have: nothing needs to be filled up, since parts may differ in size",
            ROW,
            "torch.cat([tensor.view(-1) for tensor in tensors] + [torch.zeros(-sum(map(len, (t.view(-1) for t in "
            "tensors))) % p, dtype=tensors[0].dtype)])",
            "row.split(sizes)",
            "row[: sum(sizes)].split(sizes)",
        ),
        mistake(
            "The row is there twice: one is enough, and its parts are views of it",
            "row.tensor_split(p)",
            "row.clone().tensor_split(p)",
            "row.split(sizes)",
            "torch.cat(parts).split(sizes)",
        ),
    ],
    alternatives=[
        also(  # each rank finishes the part of its right neighbor
            "grows = parts[(rank - 2 - step) % p]",
            "grows = parts[(rank - 1 - step) % p]",
            "pass_right(parts[(rank - 1 - step) % p], arrived)",
            "pass_right(parts[(rank - step) % p], arrived)",
            "pass_right(parts[(rank - step) % p], parts[(rank - 1 - step) % p])",
            "pass_right(parts[(rank + 1 - step) % p], parts[(rank - step) % p])",
        )
    ],
    hints=[
        "Which single tensor could you all-reduce in place of the list?",
        "torch.cat of the flattened tensors is one row. Its parts are those of tensor_split, and need not end where a "
        "tensor ends.",
        "Afterwards cut the row into pieces of the sizes that the tensors have, split(sizes), and copy each piece into "
        "its tensor, in its shape.",
    ],
    why="Each message takes time of its own, however small it is. So DDP puts gradients together in buckets before it "
    "all-reduces them, and FSDP gathers the parameters of a layer as one flat row.",
)
def all_reduce_many(tensors):
    """Replace each tensor of the list by the sum of all ranks' tensors in that place, in place.

    Send no more messages than for one tensor: 2(p-1) of each rank, on a ring to the right. All tensors of the list are
    contiguous and have the same dtype, and the lists of all ranks the same shapes.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % p, (rank - 1) % p

    def pass_right(leaves, arrives):
        both = [dist.P2POp(dist.isend, leaves, right), dist.P2POp(dist.irecv, arrives, left)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    # ? One row of all numbers, and its parts
    # ? Round the ring: first until each part is summed, then until all ranks have all
    # ? Back into the tensors, each in its shape
    row = torch.cat([tensor.view(-1) for tensor in tensors])
    parts = row.tensor_split(p)
    buffer = torch.empty_like(parts[0])
    for step in range(p - 1):
        grows = parts[(rank - 2 - step) % p]
        arrived = buffer[: len(grows)]
        pass_right(parts[(rank - 1 - step) % p], arrived)
        grows += arrived
    for step in range(p - 1):
        pass_right(parts[(rank - step) % p], parts[(rank - 1 - step) % p])
    sizes = [tensor.numel() for tensor in tensors]
    for tensor, piece in zip(tensors, row.split(sizes)):
        tensor.copy_(piece.view_as(tensor))
