"""Dispatch and combine, where experts are on any ranks, and some assignments were dropped."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Values, Waits, exercise, mistake

from .chapter import BY_HAND, numbers

D = 32  # numbers of a token: rows are most of the bytes


class Expert:
    """tanh(x W + number): each token leaves another trace in each."""

    def __init__(self, number, dtype):
        self.weight = numbers(D, D, seed=100 + number, dtype=dtype) / D**0.5
        self.number = number

    def __call__(self, rows):  # [R, D]
        return torch.tanh(rows @ self.weight + self.number / 4)


def case(ranks, owner, tokens, k, drops=0.0, dtype=torch.float32):
    def arguments(rank):
        N, E = tokens[rank % len(tokens)], len(owner)
        scores = numbers(N, E, seed=7 * rank + N)
        best = scores.softmax(-1).topk(k)
        dropped = numbers(N, k, seed=rank).abs() < drops
        chosen = best.indices.masked_fill(dropped, -1)
        own = {number: Expert(number, dtype) for number, place in enumerate(owner) if place == rank}
        return numbers(N, D, seed=rank + 1, dtype=dtype), chosen, best.values.to(dtype), own, list(owner)

    kind = "" if dtype == torch.float32 else ", float64"
    lost = ", some dropped" if drops else ""
    return Case(ranks, arguments, f"experts on ranks {list(owner)}, {list(tokens)} tokens, k = {k}{lost}{kind}")


def test_cases():
    yield case(2, [0, 0, 1, 1], [3], 1)
    yield case(2, [0, 1, 0, 1], [4], 2)
    yield case(2, [1, 1, 0], [3, 5], 2, dtype=torch.float64)
    yield case(3, [2, 0, 1, 0, 2], [4, 0, 3], 2)
    yield case(3, [2, 2, 0], [5], 1, drops=0.7)
    yield case(4, [3, 1, 2, 0, 1, 0, 3, 3], [6, 2], 3, drops=0.4)
    yield case(1, [0, 0, 0], [5], 2, drops=0.4)


ROWS = "x[token]"
BACK = "weights[token, slot][:, None] * back"


class Rows(Bytes):
    """Besides rows, whole numbers: two for each expert to each other rank, which all_gather them or deal them out."""

    def judge(self, exercise, trial, right):
        ranks, owner = trial.case.ranks, trial.case.arguments(0)[4]
        counts = 2 * 8 * len(owner) * (ranks - 1)
        mine, its = map(self.seen, (trial, right))
        if any(have > max(want * self.room, want + counts) for have, want in zip(mine, its)):
            super().judge(exercise, trial, right)


@exercise(
    title="Dispatch and combine",
    minutes=40,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        BY_HAND,
        Waits("whatever is started is waited for"),
        Values("each token's weighted sum, in its own place, on 1, 2, 3 and 4 ranks; a rank may have no token"),
        Rows(
            "each row goes to its expert and back once, besides two whole numbers for each expert to each rank; what "
            "was dropped is not sent",
            room=1.6,
            fewer=True,
        ),
    ],
    mistakes=[
        mistake(
            "What comes lies by sender, and of each sender by expert. It was given to the experts as if it lay by "
            "expert alone",
            "number = torch.tensor(mine).repeat(p).repeat_interleave(coming.flatten())",
            "number = torch.tensor(mine).repeat_interleave(coming.sum(0))",
        ),
        mistake(
            "Rows are sorted by expert, and sent to the ranks in blocks: right only where the first experts are on the "
            "first rank. Sort them by the rank of their expert first",
            "position[chosen[left[:, 0], left[:, 1]]].argsort(",
            "chosen[left[:, 0], left[:, 1]].argsort(",
        ),
        mistake(
            "The rows that came back are added in the order in which they were sent, and not to their tokens: where a "
            "row belongs, only its sender knows",
            "torch.zeros_like(x).index_add(0, token, ",
            "torch.zeros_like(x).index_add(0, token.sort().values, ",
        ),
        mistake(
            "The outputs are not weighted as given: each is multiplied by its weight, which is not divided by the sum "
            "again, and then they are added up",
            BACK,
            "back",
        ),
        mistake(
            "-1 is no expert: what was dropped is not sent. As an index, -1 takes the last expert",
            "(chosen >= 0).nonzero()",
            "(chosen > -2).nonzero()",
        ),
        mistake(
            "A token with several experts gets their sum: its row was overwritten",
            "torch.zeros_like(x).index_add(0, token, ",
            "torch.zeros_like(x).index_copy(0, token, ",
        ),
        mistake(
            "The weights are those of the assignments before they were sorted",
            BACK,
            "weights[left[:, 0], left[:, 1]][:, None] * back",
        ),
    ],
    hints=[
        "List the assignments that are left: (chosen >= 0).nonzero() has a row (token, slot) for each.",
        "Sort them by (rank of the expert, expert): then all rows for a rank lie together. A rank needs to know how "
        "many rows come for each of its experts, from each rank.",
        "dist.all_to_all_single(output, input, output_split_sizes, input_split_sizes) sends both the counts and the "
        "rows. Experts of other ranks than yours may be many or few: counts for rank r are as many as it has experts.",
        "The combine is the same all-to-all with its two lists of sizes exchanged. What comes back lies as you sent "
        "it: index_add it to its tokens, weighted.",
    ],
    why="Placements are uneven in practice: DeepSeek copies its most popular experts to several GPUs when it serves, "
    "and moves them as the load changes. The sort by rank and the sender's list are what makes any placement work.",
)
def dispatch_and_combine(x, chosen, weights, own, owner):
    """The output of an MoE layer for this rank's tokens, [N, D]: of each the weighted sum of its experts' outputs.

    x is [N, D], in float32 or float64, and N may differ from rank to rank. chosen [N, k] has the numbers of a token's
    experts, or -1 for an assignment that was dropped; weights [N, k] their weights. Expert e is on rank ``owner[e]``,
    and a rank may have any number of them, none as well. ``own`` has this rank's: number -> function of rows [R, D],
    R may be 0. No gradient is needed. Send each row once there, and once back; besides, at most two whole numbers for
    each expert to each rank.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    # ? the assignments that are left, by rank and expert
    # ? how many rows come for each of my experts, from each rank?
    # ? dispatch; each expert on its rows; combine
    # ? each row to its token, weighted
    of_rank = [[e for e, place in enumerate(owner) if place == r] for r in range(p)]
    order = torch.tensor([e for experts in of_rank for e in experts])  # experts by rank
    position = order.argsort()
    left = (chosen >= 0).nonzero()  # [A, 2]
    left_by_expert = position[chosen[left[:, 0], left[:, 1]]].argsort(stable=True)
    token, slot = left[left_by_expert].unbind(1)

    mine = of_rank[rank]
    going = torch.bincount(position[chosen[token, slot]], minlength=len(owner))
    sizes = [len(experts) for experts in of_rank]
    coming = torch.empty(p * len(mine), dtype=torch.int64)
    dist.all_to_all_single(coming, going, [len(mine)] * p, sizes)
    coming = coming.view(p, len(mine))
    sent = [int(part.sum()) for part in going.split(sizes)]
    received = coming.sum(1).tolist()

    rows = x.new_empty(sum(received), x.shape[1])
    dist.all_to_all_single(rows, x[token], received, sent)
    number = torch.tensor(mine).repeat(p).repeat_interleave(coming.flatten())
    y = torch.empty_like(rows)
    for e in mine:
        y[number == e] = own[e](rows[number == e])
    back = x.new_empty(sum(sent), x.shape[1])
    dist.all_to_all_single(back, y, sent, received)
    return torch.zeros_like(x).index_add(0, token, weights[token, slot][:, None] * back)
