"""All-to-all with pieces of any size: who receives does not know how much comes, so the counts travel first."""

import torch
import torch.distributed as dist

from ...errors import Wrong
from ...exercise import exercise
from ...memory import holds_at_most
from ...messages import by_hand, draw_traffic, left_open, many, messages, sends_bytes
from ...own_work import Watched
from ...ranks import Case, Trials
from ...seconds import ROOM, steps_seconds, takes_at_most
from ...values import close, returned
from ...verdict import Property
from .inputs import numbers

WIDTH = 3  # numbers in a row
COUNT = 8  # bytes of a count: one int64
LARGE = 128  # rows
WIDE = 1 << 13  # numbers in a row, where time is judged: an exchange of rows takes much longer than one of counts


def plan(ranks, kind):
    """rows[source][destination]."""
    if kind == "even":
        return [[2] * ranks for _ in range(ranks)]
    if kind == "nothing":
        return [[0] * ranks for _ in range(ranks)]
    if kind == "all to the last":
        return [[0] * (ranks - 1) + [source + 1] for source in range(ranks)]
    scale = LARGE if kind == "large" else 1
    return [
        [scale * ((3 * source + 2 * destination + source * destination) % 5) for destination in range(ranks)]
        for source in range(ranks)
    ]


def case(ranks, kind, width=WIDTH, **how):
    rows = plan(ranks, kind)
    inputs = [numbers(rank, (sum(rows[rank]), width)) for rank in range(ranks)]
    pieces = [tensor.split(mine) for tensor, mine in zip(inputs, rows)]
    expected = [torch.cat([mine[rank] for mine in pieces]) for rank in range(ranks)]
    words = "rows " + ("in another order of events" if how else kind) + (", and wide" if width > WIDTH else "")
    return Case(ranks, lambda rank: (numbers(rank, inputs[rank].shape), list(rows[rank])), words, expected, how)


def cases():
    for ranks in (1, 2, 3, 4, 8):
        for kind in ("even", "uneven", "all to the last", "nothing"):
            yield case(ranks, kind)
    for seed in (1, 2):
        yield case(4, "uneven", schedule="shuffle", seed=seed)
    yield case(4, "large")
    yield case(4, "even", WIDE)


def pieces_of(trial):
    """[source][destination] -> tensor."""
    given = [trial.case.arguments(rank) for rank in range(trial.case.ranks)]
    return [tensor.split(rows) for tensor, rows in given]


def order(trial, got, expected, pick):
    """The right rows, in the wrong order."""
    for rank, (mine, right) in enumerate(zip(got, expected, strict=True)):
        if not close(mine, right):
            if close(mine, trial.case.arguments(rank)[0]):
                return f"rank {rank} returned the rows that it was given: nothing has changed places"
            if close(mine[mine[:, 0].argsort()], right[right[:, 0].argsort()]):
                return f"rank {rank} returned the right rows in the wrong order: those of rank 0 come first"
    return None


def right_rows(trial):
    """As many as there should be, and then, whether they are the right ones."""
    for rank, mine in enumerate(trial.returned):
        right = trial.case.expected[rank]
        if isinstance(mine, torch.Tensor) and mine.dim() == 2 and len(mine) != len(right):
            count = f"rank {rank} returned {many(len(mine), 'row')}, where {len(right)} are for it"
            raise Wrong(left_open(trial) or count + missing(trial, rank, mine))
    returned(trial, [left_open, order])


def from_others(trial):
    """Alone nobody waits for a count: an answer that looks at one too early is told so where there are others."""
    if trial.case.ranks > 1:
        right_rows(trial)


def missing(trial, rank, mine):
    """Whose rows, if it is one rank's, or all but its own."""
    arrived = [pieces[rank] for pieces in pieces_of(trial)]
    if close(mine, arrived[rank]):
        return ": only those that it keeps for itself"
    for source in range(trial.case.ranks):
        if close(mine, torch.cat([*arrived[:source], arrived[source][:0], *arrived[source + 1 :]])):
            whose = "that it keeps for itself" if source == rank else f"of rank {source}"
            return f": the {many(len(arrived[source]), 'row')} {whose} are missing"
    return ""


def properties(answer):
    trials = Trials(Watched(answer), cases(), from_others)
    yield Property("runs", "it ends on 1, 2, 3, 4 and 8 ranks without an error", trials.end)
    yield Property("values", "the rows for this rank, in the order of the ranks", trials.each(right_rows))
    yield Property("by hand", "nothing but messages, each received and waited for", trials.each(by_hand))
    yield Property("bytes", "the rows for others, and 8 bytes to each other rank", trials.each(rows_and_counts))
    yield Property("messages", "to each other rank one count and, if any, its rows", trials.each(two_to_each))
    yield Property("memory", "twice the rows that are returned", trials.each(twice_the_rows, is_large))
    yield Property("time", "at most 5 % above p-1 exchanges of counts and p-1 of rows", trials.each(in_steps, is_wide))


def rows_and_counts(trial):
    p, pieces = trial.case.ranks, pieces_of(trial)
    rows = [sum(piece.nbytes for to, piece in enumerate(mine) if to != rank) for rank, mine in enumerate(pieces)]
    sends_bytes(
        trial, [nbytes + COUNT * (p - 1) for nbytes in rows], "the rows for others, and an int64 for each of them"
    )


def two_to_each(trial):
    pieces = pieces_of(trial)
    between = {}
    for message in messages(trial.run):
        between.setdefault(message.ranks, []).append(message.nbytes)
    for source, mine in enumerate(pieces):
        for destination, piece in enumerate(mine):
            sent = sorted(between.get((source, destination), []))
            right = [] if source == destination else sorted([COUNT, piece.nbytes])
            if sent != right and not (piece.nbytes == 0 and sent == [COUNT]):
                raise Wrong(
                    f"rank {source} sends messages of {sent or 'no'} bytes to rank {destination}, where "
                    f"{right or 'none'} are right: a count, then the rows",
                    draw_traffic(trial),
                )


def is_large(case):
    return "large" in case.about


def twice_the_rows(trial):
    p = trial.case.ranks
    most = [2 * result.nbytes + 4 * COUNT * p for result in trial.case.expected]
    holds_at_most(trial, most, "the rows as they arrive, once more put together, and the counts")


def is_wide(case):
    return "wide" in case.about


def in_steps(trial):
    """Pairwise exchange of the counts, and then of the rows. All at once takes less: fewer latencies, as many bytes."""
    p = trial.case.ranks
    piece = trial.case.expected[0].nbytes // p
    takes_at_most(
        trial,
        steps_seconds(p - 1, COUNT) + steps_seconds(p - 1, piece),
        "p-1 exchanges of counts and p-1 of rows take (p-1) (2 alpha + (8 + piece)/beta)",
        "Ranks wait for one another's turn. Post all sends and receives at once, and wait then; or in step k send to "
        "rank + k, and receive from rank - k at the same time",
        ROOM,
    )


@exercise(
    chapter="02_collectives",
    title="All-to-all of unequal pieces",
    minutes=30,
    difficulty=4,
    targets={
        "values": "the rows for this rank, those of rank 0 first, on 1, 2, 3, 4 and 8 ranks; some pieces are empty",
        "bytes": "each rank sends the rows for others, and one int64 (8 bytes) to each other rank",
        "messages": "to each other rank one count, then its rows (none, or an empty one, for 0 rows); none to itself",
        "memory": "at most twice the rows that are returned, besides the tensor",
        "time": "if all pieces are equal, at most 5 % more than p-1 exchanges of counts and p-1 of rows take: "
        "(p-1) (2 alpha + (8 + piece)/beta)",
    },
    hints=[
        "A receive needs a tensor of the right size. Nobody knows it before the sender says it: exchange the counts "
        "first.",
        "Each rank sends to every other one element of torch.tensor(rows), and receives one into its place in another "
        "tensor of p counts. Its own count it knows: rows[rank].",
        "Post all sends and receives of a round at once, and wait then: dist.batch_isend_irecv takes a list, which "
        "may not be empty (on 1 rank).",
        "Once the counts are known, make the result of sum(counts) rows, and receive into result.split(counts), which "
        "are views. Copy your own piece.",
    ],
    why="Mixture-of-experts layers route each token to the rank of its expert, and how many go where is known only "
    "when they are routed. So every such layer begins with an exchange of counts, as yours does.",
    check=properties,
)
def all_to_all_uneven(tensor, rows):
    """Send the first rows[0] rows of ``tensor`` to rank 0, the next rows[1] to rank 1, and so on; keep your own.

    Return the rows that came, in the order of the ranks. A rank knows only its own ``rows``: let the counts travel
    first, one int64 for each other rank.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    others = [other for other in range(p) if other != rank]
    pieces = tensor.split(rows)
    # The counts: tell each other rank how many rows it gets, and learn how many come from it.
    # The rows: post all sends and receives, wait for them, and put together what came.
    raise NotImplementedError
