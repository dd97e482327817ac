"""All-to-all with pieces of any size: who receives does not know how much comes, so the counts travel first."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Memory, Messages, Own, Seconds, Values, Waits, Wrong, exercise, mistake

from .chapter import BY_HAND, SOLVED, numbers

LARGE = 128  # rows in a piece, where bytes held are judged
WIDE = 1 << 13  # numbers in a row, where time is judged: an exchange of rows takes much longer than one of counts


def plan(ranks, kind):
    """rows[source][destination]."""
    if kind == "even rows":
        return [[2] * ranks for _ in range(ranks)]
    if kind == "no rows":
        return [[0] * ranks for _ in range(ranks)]
    if kind == "rows for the last rank alone":
        return [[0] * (ranks - 1) + [source + 1] for source in range(ranks)]
    scale = LARGE if kind == "many rows" else 1
    return [[scale * ((3 * a + 2 * b + a * b) % 5) for b in range(ranks)] for a in range(ranks)]


def case(ranks, kind, row=(3,), dtype=torch.float32, measured=False, **how):
    rows = plan(ranks, kind)
    each = f"{' x '.join(map(str, row))} numbers each" if row else "a number each"
    about = f"{kind}, {each}{', in another order of events' if how else ''}"
    return Case(
        ranks,
        lambda rank: (numbers(rank, (sum(rows[rank]), *row), dtype), list(rows[rank])),
        about,
        measured,
        facts=rows,
        how=how,
    )


def test_cases():
    for ranks, kind in [
        (2, "uneven rows"),
        (2, "even rows"),
        (3, "uneven rows"),
        (3, "rows for the last rank alone"),
        (4, "uneven rows"),
        (8, "uneven rows"),
    ]:
        yield case(ranks, kind)
    yield case(3, "no rows")
    yield case(1, "even rows")
    yield case(1, "no rows")
    yield case(3, "uneven rows", (5,), torch.int64)
    for row in ((), (2, 3)):
        yield case(3, "uneven rows", row)
    yield case(4, "uneven rows", schedule="shuffle", seed=1)
    yield case(4, "many rows", measured=True)
    yield case(4, "even rows", (WIDE,), measured=True)


class Rows(Values):
    """As many as there should be, and then, whether they are the right ones."""

    def form(self, trial, rank, mine, its):
        if isinstance(mine, torch.Tensor) and mine.shape[1:] == its.shape[1:] and len(mine) != len(its):
            rows = f"{len(mine)} row{'s' * (len(mine) != 1)}"
            raise Wrong(f"rank {rank} returned {rows}, where {len(its)} are for it{missing(trial, rank, mine)}")
        super().form(trial, rank, mine, its)

    def general(self, trial, right):
        pairs = enumerate(zip(trial.returned, right.returned))
        rank, (mine, its) = next((rank, pair) for rank, pair in pairs if not torch.equal(*pair))
        if torch.equal(mine, trial.case.arguments(rank)[0]):
            return f"rank {rank} returned the rows that it was given: nothing has changed places"
        if torch.equal(*(rows[rows.unsqueeze(-1).flatten(1)[:, 0].argsort()] for rows in (mine, its))):
            return f"rank {rank} returned the right rows in the wrong order: those of rank 0 come first"
        return super().general(trial, right)


def missing(trial, rank, mine):
    """Whose rows, if it is one rank's, or all but its own."""
    given = [trial.case.arguments(source) for source in range(trial.case.ranks)]
    pieces = [tensor.split(rows)[rank] for tensor, rows in given]
    if torch.equal(mine, pieces[rank]):
        return ": only those that it keeps for itself"
    for source in range(trial.case.ranks):
        if torch.equal(mine, torch.cat([*pieces[:source], pieces[source][:0], *pieces[source + 1 :]])):
            return f": those {'that it keeps for itself' if source == rank else f'of rank {source}'} are missing"
    return ""


def returned(case):
    """Bytes, of the rank that gets the most rows."""
    tensor, rows = case.arguments(0)
    return max(map(sum, zip(*case.facts))) * tensor.nbytes // sum(rows)


@exercise(
    title="All-to-all of unequal pieces",
    minutes=30,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        Rows("the rows for this rank, those of rank 0 first, on 1, 2, 3, 4 and 8 ranks; some pieces are empty"),
        Own("nothing but messages", BY_HAND, SOLVED, only=["message"]),
        Waits("each message is received and waited for"),
        Messages(
            "to each other rank one count, then its rows (none, or an empty one, for 0 rows); none to itself",
            empty=False,
        ),
        Bytes("each rank sends the rows for others, and one int64 (8 bytes) to each other rank"),
        Memory(
            "at most twice the rows that are returned, besides the tensor: as they arrive, and once more put together",
            slack=returned,
        ),
        Seconds(
            "if all pieces are equal, hardly more than p-1 exchanges of counts take, and p-1 of rows",
            "Ranks wait for one another's turn. Post all sends and receives at once, and wait then; or in step k send "
            "to rank + k, and receive from rank - k at the same time",
            room=3.0,  # posted all at once they take a third,
        ),
    ],
    mistakes=[
        mistake("A rank keeps its own rows, too: copy them", "arriving[rank].copy_(outgoing[rank])", "pass"),
        mistake(
            "Each rank looks at the counts before they have come: wait for them",
            "            work.wait()",
            "            pass",
        ),
        mistake(
            "What receives rows has not as many as are sent: are these the counts of what goes out, or another rank's? "
            "How many come in, only the others know",
            "exchange(torch.tensor(rows).split(1), counts.split(1))",
            "counts = torch.tensor(rows)",
        ),
        mistake(
            "What receives rows lacks the other dimensions of a row, which need not be a number: "
            "tensor.new_empty(count, *tensor.shape[1:])",
            "int(counts.sum()), *tensor.shape[1:]",
            "int(counts.sum())",
        ),
        mistake(
            "Each rank tells each other one all of its counts. Only one of them concerns it: the number of rows that "
            "it gets",
            "counts = torch.empty(p, dtype=torch.int64)",
            "counts = torch.empty(p, p, dtype=torch.int64)",
            "exchange(torch.tensor(rows).split(1), counts.split(1))",
            "exchange([torch.tensor(rows)] * p, counts)\n    counts = counts[:, rank]",
        ),
    ],
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
)
def all_to_all_uneven(tensor, rows):
    """Send the first rows[0] rows of ``tensor`` to rank 0, the next rows[1] to rank 1, and so on; keep your own.

    Return the rows that came, in the order of the ranks. A row is a tensor of any shape, or a number. A rank knows only
    its own ``rows``: let the counts travel first, one int64 for each other rank.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    others = [other for other in range(p) if other != rank]
    pieces = tensor.split(rows)
    # ? The counts: tell each other rank how many rows it gets, and learn how many come from it.
    # ? The rows: post all sends and receives, wait for them, and put together what came.

    def exchange(outgoing, arriving):
        messages = [dist.P2POp(dist.isend, outgoing[other], other) for other in others]
        messages += [dist.P2POp(dist.irecv, arriving[other], other) for other in others]
        for work in dist.batch_isend_irecv(messages) if messages else []:  # an empty list is an error
            work.wait()
        arriving[rank].copy_(outgoing[rank])

    counts = torch.empty(p, dtype=torch.int64)
    exchange(torch.tensor(rows).split(1), counts.split(1))
    result = tensor.new_empty(int(counts.sum()), *tensor.shape[1:])
    exchange(pieces, result.split(counts.tolist()))
    return result
