"""A hierarchical all-reduce with its levels swapped: the sum is right, and too much leaves each node."""

import torch
import torch.distributed as dist

from tinydist.lab.author import (
    Bytes,
    Case,
    Memory,
    Own,
    Seconds,
    Target,
    Values,
    Waits,
    Wrong,
    contributions,
    exercise,
    mistake,
    unchanged,
)
from tinydist.lab.differences import NOT_ADDED

from .chapter import BY_HAND, FLOAT, LARGE, SOLVED, TWO_BY_FOUR, numbers

LEVELS = "    parts = tensor.tensor_split(per_node)\n    mine = parts[inside.index(rank)]\n"
PIECES = "    pieces = mine.tensor_split(len(across))\n"
DOWN = "    reduce_scatter(inside, parts)\n"
AROUND = "    reduce_scatter(across, pieces)\n    all_gather(across, pieces)\n"
UP = "    all_gather(inside, parts)"


def case(ranks, per_node, count, measured=False, changed=None, **how):
    about = f"{per_node} in each node, {count} numbers each" + (", in another order of events" if how else "")
    if changed is not None:
        about += f", and those that rank {changed} sends changed on the way"
    return Case(ranks, lambda rank: (numbers(rank, (count,)), per_node), about, measured, changed, per_node, how=how)


def test_cases():
    for ranks, per_node, count in [
        (4, 2, 8),
        (2, 1, 6),
        (2, 2, 6),
        (3, 1, 7),
        (6, 3, 24),
        (6, 2, 13),
        (8, 4, 3),
        (8, 2, 24),
        (1, 1, 4),
    ]:
        yield case(ranks, per_node, count)
    yield case(6, 3, 10, schedule="shuffle", seed=1)
    yield case(4, 2, 8, changed=1)
    yield case(8, 4, LARGE, measured=True)


def missing(*arguments):
    """Whose numbers are; the rings are as they should be, so it is not one of their hops."""
    found = contributions(*arguments)
    return found and found.replace(f": {NOT_ADDED}", "").replace(": a hop that was not made or not added", "")


def uneven(case):
    return len(case.arguments(0)[0]) % case.ranks > 0


def leaving(trial):
    """Bytes that leave each node, in the order of the nodes."""
    per_node, traffic = trial.case.facts, trial.run.traffic
    homes = [rank // per_node for rank in range(trial.case.ranks)]
    crossing = [sum(n for to, n in enumerate(row) if homes[to] != homes[rank]) for rank, row in enumerate(traffic)]
    return [sum(crossing[first : first + per_node]) for first in range(0, trial.case.ranks, per_node)]


class Leaving(Target):
    """Where parts are even: else it depends on which of them are the larger."""

    name = "bytes between nodes"

    def concerns(self, trial, exercise):
        return trial.error is None and not uneven(trial.case)

    def judge(self, exercise, trial, right):
        for node, (mine, its) in enumerate(zip(leaving(trial), leaving(right))):
            if mine > its:
                partners = [sum(map(bool, row)) for row in trial.run.traffic]
                flat = "each rank sends to one other alone, in one ring of all ranks that knows nothing of nodes: "
                told = flat if set(partners) == {1} and 1 < trial.case.facts < trial.case.ranks else ""
                raise Wrong(f"{told}{mine:,} bytes leave node {node}, where {its:,} are enough: {self.holds}")

    def seen(self, trial):
        return None if trial.error is not None else trial.run.traffic


@exercise(
    title="The right sum over the wrong wires",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Values(
            "the sum, in the tensor itself, on 1 to 8 ranks in nodes of 1 to 4; uneven parts, and fewer numbers than "
            "ranks",
            explain=(unchanged, missing),
        ),
        Own("nothing but messages", BY_HAND, SOLVED, only=["message"]),
        Waits("each message is received and waited for"),
        Leaving("2(k-1)/k n leave each of k nodes, by all its ranks together"),
        Bytes("2(p-1)/p n of each rank; if the parts are uneven, 2(p-1) n in all", together=uneven),
        Memory("two parts of n/g besides, in nodes of g ranks: what arrives, and its sum", slack=LARGE * FLOAT // 4),
        Seconds(
            "in 2 nodes of g = 4 ranks 2(g-1) (alpha + n/(g beta)) inside and 2 (alpha + n/(p beta)) between the nodes",
            "All ranks of a node should send at the same time, each over its own network card",
            clusters=lambda case: [TWO_BY_FOUR],
        ),
    ],
    mistakes=[
        mistake(
            "The first exchange is the largest, and it goes from node to node: the levels are swapped",
            LEVELS,
            "    parts = tensor.tensor_split(len(across))\n    mine = parts[across.index(rank)]\n",
            PIECES,
            "    pieces = mine.tensor_split(per_node)\n",
            DOWN,
            "    reduce_scatter(across, parts)\n",
            AROUND,
            "    reduce_scatter(inside, pieces)\n    all_gather(inside, pieces)\n",
            UP,
            "    all_gather(across, parts)",
            given=True,
        ),
        mistake(
            "Too much goes to other nodes. In its node a rank has summed one part, n/g: only this needs to go, cut "
            "in one "
            "piece for each node, round a ring; not the whole tensor, and not the whole part k-1 times",
            "pieces = mine.tensor_split",
            "pieces = tensor.tensor_split",
        ),
        mistake(
            "Go back the way that you came: what was exchanged last, across the nodes, is gathered first",
            AROUND + UP,
            "    reduce_scatter(across, pieces)\n    all_gather(inside, parts)\n    all_gather(across, pieces)",
        ),
        mistake(
            "The nodes have not summed up what they have: the all-reduce across them is missing",
            AROUND,
            "",
        ),
        mistake(
            "Each rank has the sum of its own part alone: at the end all ranks of a node gather the parts",
            UP,
            "",
        ),
        mistake(
            "What is summed across the nodes has to come back to all of them: a part is in pieces, one on each node",
            "    all_gather(across, pieces)\n",
            "",
        ),
        mistake(
            "A ring needs as many parts as it has ranks: per_node inside, len(across) across",
            "    parts = tensor.tensor_split(per_node)\n",
            "    parts = tensor.tensor_split(len(across))\n",
        ),
        mistake(
            "A ring has as many parts as ranks: per_node inside of a node, and one for each node across",
            "    parts = tensor.tensor_split(per_node)\n",
            "    parts = tensor.tensor_split(len(across))\n",
            "    pieces = mine.tensor_split(len(across))\n",
            "    pieces = mine.tensor_split(per_node)\n",
        ),
    ],
    hints=[
        "Run it on tinydist.hardware's find_cluster('2 x 4'), and look at visuals.traffic(run): how dark are the "
        "squares of what leaves a node?",
        "The first reduce-scatter moves nearly the whole tensor, the second only a part of it. Which of the two should "
        "stay in a node?",
        "The first cut is into per_node parts, one for each rank of the node. What is left for each rank, n/per_node, "
        "is the sum of its node: only this goes across, in len(across) pieces.",
    ],
    why="Swapped axes of a device mesh do exactly this: init_device_mesh('cpu', (nodes, per_node)) has the nodes "
    "first. No value shows it, only the bytes that leave a node.",
)
def mended_hierarchy(tensor, per_node):
    """Mend this hierarchical all-reduce. Its sum is right, and too many bytes leave each node.

    Ranks 0 to ``per_node`` - 1 are in the first node, the next ``per_node`` in the second, and so on. The two rings are
    as they should be: ``reduce_scatter(ranks, parts)`` sums part i on ranks[i], and ``all_gather(ranks, parts)`` gives
    all of these ranks the part i of ranks[i].
    """
    rank, p = dist.get_rank(), dist.get_world_size()

    def pass_on(ranks, outgoing, incoming):
        me = ranks.index(rank)
        right, left = ranks[(me + 1) % len(ranks)], ranks[me - 1]
        both = [dist.P2POp(dist.isend, outgoing, right), dist.P2POp(dist.irecv, incoming, left)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    def reduce_scatter(ranks, parts):
        me, size = ranks.index(rank), len(ranks)
        arrived = torch.empty_like(parts[0])
        for step in range(size - 1):
            grows = parts[(me - 2 - step) % size]
            pass_on(ranks, parts[(me - 1 - step) % size], arrived[: len(grows)])
            grows += arrived[: len(grows)]

    def all_gather(ranks, parts):
        me, size = ranks.index(rank), len(ranks)
        for step in range(size - 1):
            pass_on(ranks, parts[(me - step) % size], parts[(me - 1 - step) % size])

    first = rank - rank % per_node  # of this node
    inside = range(first, first + per_node)
    across = range(rank % per_node, p, per_node)

    parts = tensor.tensor_split(per_node)
    mine = parts[inside.index(rank)]
    reduce_scatter(inside, parts)
    pieces = mine.tensor_split(len(across))
    reduce_scatter(across, pieces)
    all_gather(across, pieces)
    all_gather(inside, parts)
