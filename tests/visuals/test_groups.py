"""Each group has one color in its axis's row; the words say which groups leave their node."""

import numpy as np
import pytest

from tinydist import visuals
from tinydist.hardware import find_cluster

MESH = np.arange(32).reshape(4, 2, 4)  # pp, dp, tp
GROUPS = {
    "tp": MESH.reshape(-1, 4).tolist(),
    "dp": MESH.swapaxes(1, 2).reshape(-1, 2).tolist(),
    "pp": np.moveaxis(MESH, 0, 2).reshape(-1, 4).tolist(),
}


def test_a_color_for_each_group_of_an_axis():
    [axes] = visuals.groups(GROUPS).axes
    colors = [tuple(each.get_facecolor()[0]) for each in axes.collections]
    sizes = [len(each.get_paths()) for each in axes.collections]
    assert sizes == [4] * 8 + [2] * 16 + [4] * 8
    for of_axis in (colors[:8], colors[8:24], colors[24:]):
        assert len(set(of_axis)) == len(of_axis)
    assert [text.get_text() for text in axes.texts if not text.get_text().isdigit()] == [
        "tp",
        "dp",
        "pp",
        *(f"node {number}" for number in range(4)),
    ]


def test_the_groups_of_a_rank_are_marked():
    [axes] = visuals.groups(GROUPS, rank=5).axes
    assert len(axes.patches) == 4 + 2 + 4
    assert not visuals.groups(GROUPS).axes[0].patches


def test_the_words_say_which_groups_leave_their_node(said):
    visuals.groups(GROUPS)
    assert said() == (
        "tp: 8 groups of 4, each inside a node; dp: 16 groups of 2, each inside a node; "
        "pp: 8 groups of 4, each across nodes\n"
    )
    visuals.groups({"both": [[0, 1, 2], [3, 4], [5, 6, 7]]}, find_cluster("2 x 4"))
    assert said() == "both: 3 groups of 2 or 3, 1 of them across nodes\n"


def test_ranks_alone_have_no_color(said):
    [axes] = visuals.groups({"pp": [[rank] for rank in range(32)], "tp": GROUPS["tp"]}).axes
    assert len({tuple(each.get_facecolor()[0]) for each in axes.collections[:32]}) == 1
    assert said() == "pp: each rank alone; tp: 8 groups of 4, each inside a node\n"


@pytest.mark.parametrize(
    "groups, error",
    [
        (
            {"tp": [[0, 1], [2, 3]], "dp": [[0, 2]]},
            r"groups: those of dp must have each of 4 ranks once, got \[0, 2\]",
        ),
        ({"tp": [[rank, 17 + rank] for rank in range(17)]}, "groups: at most 16 can be told apart, but tp has 17"),
    ],
)
def test_groups_that_are_none(groups, error):
    with pytest.raises(ValueError, match=error):
        visuals.groups(groups)
