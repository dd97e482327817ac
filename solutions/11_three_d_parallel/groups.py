"""Who is in whose group: for axes in any order, along one of them or several."""

from ast import literal_eval
from math import prod

import torch

from tinydist.lab.author import Own, Varied, Wrong, alone, exercise, mistake

FIRSTS = "the first ranks of the groups"
MEGATRON = "tp-dp-pp"


def case(order, along, **sizes):
    mesh = " x ".join(f"{axis} {sizes[axis]}" for axis in order.split("-"))
    return alone(lambda: (dict(sizes), order, along), f"{mesh}, the first fastest, along {along}")


def by_rank(answer, sizes, order, along):
    """In words, for each rank: so a group too many is no reason to say nothing of the others."""
    found = answer(sizes, order, along)
    if not isinstance(found, list | tuple) or not all(isinstance(group, list | tuple) for group in found):
        raise Wrong(f"it returned {found!r}, where a list of lists of ranks is right")
    there = [rank for group in found for rank in group]
    if sorted(there) != list(range(prod(sizes.values()))):
        raise Wrong(f"each of {prod(sizes.values())} ranks is in one group, but these have the ranks {there}")
    groups = {f"the group of rank {rank}": str(list(group)) for group in found for rank in group}
    return dict(sorted(groups.items())) | {FIRSTS: str([group[0] for group in found])}


def test_cases():
    yield case(MEGATRON, "tp", pp=2, dp=2, tp=2)
    yield case(MEGATRON, "dp", pp=2, dp=2, tp=2)
    yield case(MEGATRON, "tp-pp", pp=2, dp=2, tp=2)
    yield case(MEGATRON, "pp", tp=4, dp=2, pp=3)
    yield case(MEGATRON, "pp-tp", tp=2, dp=3, pp=4)
    yield case("tp-pp-dp", "pp", pp=2, dp=3, tp=4)
    yield case("dp-tp-pp", "dp-pp", pp=3, dp=2, tp=2)
    yield case("tp-cp-dp-pp", "dp-cp", pp=2, dp=2, cp=3, tp=2)
    yield case("tp-cp-dp-pp", "dp", pp=2, dp=2, cp=2, tp=2)
    yield case(MEGATRON, "tp-dp-pp", pp=2, dp=1, tp=3)
    yield case(MEGATRON, "dp", pp=1, dp=1, tp=1)


class Groups(Varied):
    def mistaken(self, exercise, trial, right, earlier=()):
        """Who is in them, whatever their order?"""
        found = super().mistaken(exercise, trial, right, earlier)
        mine, its = (
            {rank: sorted(literal_eval(each)) for rank, each in run.returned[0].items()} for run in (trial, right)
        )
        same = [rank for rank in its if mine.get(rank) == its[rank]]
        if found.get(2) or not set(its) <= {*same, FIRSTS}:
            return found
        if all(sorted(literal_eval(each)) == literal_eval(each) for each in trial.returned[0].values()):
            return {2: "The groups are right, and not their order: the lists are in the order of their first ranks"}
        return {2: "The right ranks are in each group, and not in their order: each list rises"}


WANTED = "wanted = [place for place, axis in enumerate(slowest_first) if axis in along]"
FASTEST_LAST = 'slowest_first = order.split("-")[::-1]'
BLOCK = "[sizes[axis] for axis in slowest_first]"
SPLIT = "block.permute(*others, *wanted)"


@exercise(
    title="Who is in whose group",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    program=by_rank,
    targets=[
        Groups(
            "lists of ranks, for 3 and 4 axes in several orders, along one axis and along several",
            variants=[
                (
                    "Inside of a group ranks are in rising order: here the first axis of `along` counts fastest, "
                    "whichever is faster in `order`",
                    WANTED,
                    "wanted = [slowest_first.index(axis) for axis in along[::-1]]",
                ),
                (
                    "Inside of a group ranks are in rising order: this is the falling one",
                    ".tolist()",
                    ".flip(1).tolist()",
                ),
                (
                    "Along several axes there is one group for all that differ in any of them. These are the groups "
                    "along the last axis of `along` alone",
                    'along = along.split("-")',
                    'along = along.split("-")[-1:]',
                ),
                (
                    "Ranks of a group differ in the axes of `along` alone: these groups are too large, and have "
                    "several values of another axis",
                    SPLIT + ".reshape(-1, prod(sizes[axis] for axis in along))",
                    SPLIT + ".reshape(-1, prod(sizes[axis] for axis in {*along, slowest_first[-1]}))",
                ),
                (
                    "The ranks are cut into as many groups as there should be, one rank to each in turn: their stride "
                    "is that of the axis, and not the number of groups",
                    SPLIT + ".reshape(-1, prod(sizes[axis] for axis in along))",
                    "block.reshape(prod(sizes[axis] for axis in along), -1).T",
                ),
                (
                    "The axes of `order` are those of the mesh: they are taken in the order of the alphabet here",
                    FASTEST_LAST,
                    "slowest_first = sorted(sizes)",
                ),
            ],
        ),
        Own("no device mesh", "it is arithmetic on the numbers of ranks", ["torch.distributed.device_mesh"]),
    ],
    mistakes=[
        mistake(
            "`order` begins with the axis that counts fastest: ranks 0 and 1 differ in the first one",
            FASTEST_LAST,
            'slowest_first = order.split("-")',
        ),
        mistake(
            "The ranks of these groups agree in the axes of `along`. It is the other way round: in a group along an "
            "axis they differ in it, and agree in all others",
            SPLIT,
            "block.permute(*wanted, *others)",
            "prod(sizes[axis] for axis in along)",
            "prod(sizes[axis] for axis in sizes if axis not in along)",
        ),
        mistake(
            "These groups are runs of neighboring ranks. Along an axis that is not the fastest, ranks of a group are "
            "further apart",
            SPLIT,
            "block",
        ),
        mistake(
            "Inside of a group ranks are in rising order, whatever the order of the axes in `along`",
            "wanted = [place for place, axis in enumerate(slowest_first) if axis in along]",
            "wanted = [slowest_first.index(axis) for axis in along]",
        ),
        mistake(
            "Along several axes there is one group for all that differ in any of them. These are the groups along the "
            "first axis of `along` alone",
            'along = along.split("-")',
            'along = along.split("-")[:1]',
        ),
        mistake(
            "The order of the axes is that of `order`, and not always tp, dp, pp",
            FASTEST_LAST,
            'slowest_first = [axis for axis in ("pp", "dp", "cp", "tp") if axis in sizes]',
        ),
        mistake(
            "The sizes come by name, and their order in the dict says nothing",
            BLOCK,
            "list(sizes.values())",
        ),
        mistake(
            "The lists are in the order of their first ranks",
            ".tolist()",
            ".tolist()[::-1]",
        ),
    ],
    hints=[
        "Write down the eight ranks of pp 2 x dp 2 x tp 2 with their three numbers, tp counting fastest. Which of them "
        "agree with rank 0 in dp, and differ in tp or pp?",
        "Lay the ranks out as a tensor with a dimension for each axis, the slowest axis first, since the last "
        "dimension of a tensor counts fastest. Then bring the dimensions of `along` to the end, in their order.",
        "What is left in front counts the groups. All that is behind, flattened, are the ranks of one.",
    ],
    why="Megatron-LM's RankGenerator does this for tp, cp, ep, dp and pp. The group along tp-pp holds one whole "
    "copy of the model: the norm of all gradients is summed there.",
)
def groups(sizes, order, along):
    """Return the groups of a mesh along one axis or several, as lists of ranks.

    ``sizes`` is a dict such as {"tp": 2, "dp": 2, "pp": 2}. ``order`` names the axes, the one that counts fastest
    first: in "tp-dp-pp", ranks 0 and 1 differ in tp. ``along`` is one axis, such as "dp", or several, such as "tp-pp":
    the ranks of a group differ in those, and agree in all others. Each list rises, and the lists are in the order of
    their first ranks.
    """
    # ? Which dimension of the block of ranks is which axis? Which of them count groups?
    along = along.split("-")
    slowest_first = order.split("-")[::-1]
    block = torch.arange(prod(sizes.values())).view([sizes[axis] for axis in slowest_first])
    others = [place for place, axis in enumerate(slowest_first) if axis not in along]
    wanted = [place for place, axis in enumerate(slowest_first) if axis in along]
    return block.permute(*others, *wanted).reshape(-1, prod(sizes[axis] for axis in along)).tolist()
