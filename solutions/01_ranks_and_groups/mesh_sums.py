"""The groups of a device mesh, made by hand."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Own, Values, exercise, mistake


def world(rows, columns):
    return Case(
        rows * columns,
        lambda rank: (torch.tensor([10.0**rank + 0.5, rank + 0.25]), rows),
        f"a mesh of {rows} x {columns}",
    )


def worlds():
    for rows, columns in [(2, 4), (2, 2), (4, 2), (2, 3), (3, 2), (1, 3), (3, 1), (2, 1), (1, 1)]:
        yield world(rows, columns)


def program(answer, x, rows):
    """Besides the sums, how many groups the answer has made: torch names groups by their number."""
    results = answer(x, rows)
    following = dist.new_group(list(range(dist.get_world_size())))
    return *results, int(following.group_name) - 1


@exercise(
    title="The groups of a mesh, by hand",
    minutes=15,
    difficulty=2,
    worlds=worlds,
    program=program,
    follows=False,  # ranks talk in groups of their own: what is sent there is not changed
    targets=[
        Values(
            "for meshes from 1 x 1 to 4 x 2; and each rank makes all groups",
            ["the sum along the row", "the sum along the column", "the number of groups that it makes"],
        ),
        Own("no device mesh", "make the groups yourself, with dist.new_group", ["torch.distributed.device_mesh"]),
        Bytes("one all-reduce in the row, and one in the column"),
    ],
    mistakes=[
        mistake(
            "Only its members make a group. All ranks of the world make all groups, in the same order: a group's name "
            "is its number, and its members find one another by that name",
            "            group = dist.new_group(ranks)\n            if rank in ranks:\n                mine = group\n",
            "            if rank in ranks:\n                mine = dist.new_group(ranks)\n",
        ),
        mistake(
            "The two are exchanged: first the sum along the row, then that along the column",
            "(rows_of_mesh, columns_of_mesh)",
            "(columns_of_mesh, rows_of_mesh)",
        ),
        mistake(
            "A column is every rank that leaves the same remainder when it is divided by the number of columns, not "
            "by the number of rows",
            "list(range(column, p, columns)) for column in range(columns)",
            "list(range(column, p, rows)) for column in range(rows)",
        ),
        mistake(
            "A row has as many ranks as there are columns: rank r is in row r // columns, not r // rows",
            "list(range(row * columns, (row + 1) * columns)) for row in range(rows)",
            "list(range(row * rows, (row + 1) * rows)) for row in range(columns)",
        ),
        mistake(
            "The second sum begins with the result of the first: each of the two needs a copy of x",
            "        total = x.clone()\n",
            "        total = x.clone() if lists is rows_of_mesh else sums[0].clone()\n",
        ),
        mistake(
            "Both sums go over all ranks: is the group missing in the call, or is the second sum made in the tensor "
            "of the first?",
            "dist.all_reduce(total, group=mine)",
            "dist.all_reduce(total)",
        ),
    ],
    hints=[
        "Write down the rows and the columns of 2 x 4 as lists of ranks. How many groups are that?",
        "Row r of a mesh with c columns is r * c, ..., (r + 1) * c - 1. Column k is k, k + c, k + 2c, ...",
        "All ranks call new_group for all rows and all columns, in one order. A rank keeps the two groups that it "
        "is in, and calls all_reduce in each of them, with a copy of x.",
    ],
    why="This is what init_device_mesh does, and what Megatron-LM does in parallel_state. Who reads a list of "
    "groups in a log can tell at once which of them lie inside a node.",
)
def mesh_sums(x, rows):
    """Return two new tensors: the sum of all ``x`` in this rank's row, and in its column.

    The p ranks are laid out as ``rows`` rows and p / rows columns, row by row. Make the
    groups yourself, with ``dist.new_group``, as the rules of chapter 01 want it. ``x``
    stays as it is.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    columns = p // rows
    # ? Which ranks are in each row, and which in each column? Who makes the groups?
    rows_of_mesh = [list(range(row * columns, (row + 1) * columns)) for row in range(rows)]
    columns_of_mesh = [list(range(column, p, columns)) for column in range(columns)]
    sums = []
    for lists in (rows_of_mesh, columns_of_mesh):
        for ranks in lists:
            group = dist.new_group(ranks)
            if rank in ranks:
                mine = group
        total = x.clone()
        dist.all_reduce(total, group=mine)
        sums.append(total)
    return sums[0], sums[1]
