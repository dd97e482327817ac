"""The groups of a device mesh of any shape, made by hand."""

import warnings

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Own, Values, Wrong, exercise, mistake
from tinydist.rules import ranks_in_words

MADE = "            group = dist.new_group(ranks)\n            if rank in ranks:\n                mine = group\n"


def world(*shape):
    return Case(
        torch.Size(shape).numel(),
        lambda rank: (torch.tensor([2.0**rank, rank + 0.25]), list(shape)),
        f"a mesh of {' x '.join(map(str, shape))}",
    )


def test_cases():
    for shape in [(2, 2, 3), (2, 4), (4, 2), (3, 2), (2, 1, 2), (2, 2, 2), (6,), (1, 3), (2,), (1, 1)]:
        yield world(*shape)


def program(answer, x, shape):
    """Besides the sums, how many groups the answer has made: torch names groups by their number."""
    given = x.clone()
    warnings.filterwarnings("error", message=".*does not belong to the given group")
    try:
        sums = answer(x, shape)
    except UserWarning as outside:  # torch only warns
        raise Wrong(
            f"rank {dist.get_rank()} calls a collective of a group it is not in: keep, of those that you make, the "
            "one that this rank is in, and call all_reduce there alone"
        ) from outside
    if not torch.equal(x, given):
        raise Wrong(
            "you changed x: an all_reduce writes into its tensor, so sum in a copy of x, a new one for each axis"
        )
    if not isinstance(sums, list | tuple) or len(sums) != len(shape):
        raise Wrong("it should return a list of as many tensors as the mesh has axes")
    following = dist.new_group(list(range(dist.get_world_size())))
    made = int(following.group_name) - 1
    if made == 0:
        raise Wrong(
            "no group was made by all ranks together: make the groups of the mesh with dist.new_group on every rank, "
            "and sum in them. (If you pass use_local_synchronization=True, its members alone make it: leave it out)"
        )
    found = {f"the sum along axis {axis}": each for axis, each in enumerate(sums)}
    for axis, each in enumerate(sums):
        if isinstance(each, torch.Tensor) and each.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
            raise Wrong(
                f"on rank {dist.get_rank()} the sum along axis {axis} is x itself, and no new tensor: who writes into "
                "it changes x"
            )
    return {**found, "the number of groups that it makes": made}


class Sums(Values):
    def mistaken(self, exercise, trial, right, earlier=()):
        sums = [each for each in trial.returned[0].values() if isinstance(each, torch.Tensor)]
        if len({each.untyped_storage().data_ptr() for each in sums}) < len(sums):
            return {
                2: "The sums of several axes are one tensor here: each all_reduce adds up what the one before has "
                "left in it. Each axis needs a copy of x of its own"
            }
        return super().mistaken(exercise, trial, right, earlier)

    def general(self, trial, right):
        """Rank r has 2**r: the bits of a sum say whose numbers are in it."""
        mine, its = trial.returned[0], right.returned[0]
        for name, want in its.items():
            if isinstance(want, torch.Tensor) and not torch.equal(mine[name], want):
                has, wants, p = float(mine[name][0]), float(want[0]), trial.case.ranks
                count = int(wants).bit_count()
                if has * count == wants:
                    return f"{name} is the mean of the {count} ranks of the group, where the sum is asked for"
                if has != int(has) or not 0 < has < 2**p:
                    return ""
                who, whom = ([rank for rank in range(p) if int(each) >> rank & 1] for each in (has, wants))
                return (
                    f"in {name} are the numbers of {ranks_in_words(who)} here, where those of {ranks_in_words(whom)} "
                    "are right"
                )
        return ""


@exercise(
    title="The groups of a mesh, by hand",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=program,
    targets=[
        Sums("for meshes of 1, 2 and 3 axes, on 1 to 12 ranks; and each rank makes all groups"),
        Own("no device mesh", "make the groups yourself, with dist.new_group", ["torch.distributed.device_mesh"]),
        Bytes("one all-reduce in each of the rank's groups, one group for each axis", names=True),
    ],
    mistakes=[
        mistake(
            "Only its members make a group. All ranks of the world make all groups, in the same order: a group's name "
            "is its number, and its members find one another by that name",
            MADE,
            "            if rank in ranks:\n                mine = dist.new_group(ranks)\n",
        ),
        mistake(
            "Some ranks are not in the group in which they sum, and keep their own x: of the groups that you make, "
            "keep the one that this rank is in, which need not be the last",
            "            if rank in ranks:\n                mine = group\n",
            "            mine = group\n",
            "        dist.all_reduce(total, group=mine)",
            "        if dist.get_rank(mine) >= 0:  # torch warns of the call, and does nothing\n"
            "            dist.all_reduce(total, group=mine)",
        ),
        mistake(
            "These groups are runs of neighboring ranks, which is right along the last axis alone: along another axis "
            "the ranks of a group are further apart",
            ".movedim(axis, -1)",
            "",
        ),
        mistake(
            "These ranks have the same coordinate on this axis. Along an axis it is the other way round: this "
            "coordinate differs, and all others are the same",
            ".movedim(axis, -1).reshape(-1, length)",
            ".movedim(axis, 0).reshape(length, -1)",
        ),
        mistake(
            "The order of the axes is reversed: the first sum is that along axis 0, whose coordinate varies slowest",
            "return sums",
            "return sums[::-1]",
        ),
        mistake(
            "The last coordinate varies fastest: ranks 0 and 1 differ in it, and not in the first one",
            "torch.arange(p).view(shape)",
            "torch.arange(p).view(shape[::-1]).permute(*reversed(range(len(shape))))",
        ),
        mistake(
            "Each sum begins with the result of the one before: each needs a copy of x of its own",
            "total = x.clone()",
            "total = sums[-1].clone() if sums else x.clone()",
        ),
        mistake(
            "These sums go over all ranks: does the call have a group, and is it that of this axis?",
            "dist.all_reduce(total, group=mine)",
            "dist.all_reduce(total)",
        ),
    ],
    hints=[
        "Write down the groups of 2 x 2 x 3 along each axis, as lists of ranks. Along axis 2 they are [0, 1, 2], "
        "[3, 4, 5] and so on. Along axis 0, who is with rank 0?",
        "From one rank of a group to the next, the number grows by the product of the lengths of all later axes: along "
        "axis 0 of 2 x 2 x 3 by 6, along axis 1 by 3, along axis 2 by 1. Or let grid do it: bring the axis to the end, "
        "and cut it into rows.",
        "All ranks call new_group for all groups of an axis, in one order. A rank keeps the one that it is in, and "
        "calls all_reduce there, with a copy of x.",
    ],
    why="This is what init_device_mesh does, and what Megatron-LM does in parallel_state, with an axis each for "
    "tensor, pipeline and data parallel ranks. The lists are the work: new_subgroups_by_enumeration of "
    "torch.distributed only calls new_group for each of them, on all ranks. Who reads a list of groups in a log can "
    "tell at once which of them lie inside a node.",
)
def mesh_sums(x, shape):
    """Return a list of new tensors, one for each axis of a mesh: the sum of all ``x`` in
    this rank's group along that axis.

    The p ranks are laid out as a mesh of this ``shape``, for example [2, 4] or [2, 2, 3];
    the last coordinate varies fastest, as in the chapter. In a group along an axis are
    all ranks whose other coordinates are the same. Find out yourself which ranks each
    group has, and make the groups as the rules of chapter 01 want it. ``x`` stays as it is.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    grid = torch.arange(p).view(shape)  # the rank at each place of the mesh
    sums = []
    for axis, length in enumerate(shape):
        # ? Which groups are there along this axis? Who makes them, and which is mine?
        for ranks in grid.movedim(axis, -1).reshape(-1, length).tolist():
            group = dist.new_group(ranks)
            if rank in ranks:
                mine = group
        total = x.clone()
        dist.all_reduce(total, group=mine)
        sums.append(total)
        # .
    return sums
