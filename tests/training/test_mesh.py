"""Who is in whose group, and which link it lies on."""

import pytest
import torch.distributed as dist

import tinydist
from tinydist.training import AXES, Plan, make_mesh, members, place_of
from tinydist.training.mesh import place_in

PLANS = [
    Plan(2, 2, 2, zero=1),
    Plan(3, 2, 2),
    Plan(2, 4, 1, zero=3, replicate=2),
    Plan(1, 3, 2, zero=2),
    Plan(2, 2, cp=2),
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_the_arithmetic_is_that_of_torchs_mesh(plan):
    def program():
        mesh = make_mesh(plan)
        return place_in(mesh), [dist.get_process_group_ranks(mesh.get_group(axis)) for axis in AXES]

    for rank, found in enumerate(tinydist.launch(program, plan.ranks, observe=False).results):
        assert found == (place_of(plan, rank), [members(plan, axis, rank) for axis in AXES])


def test_tp_is_fastest_and_pp_slowest():
    plan = Plan(2, 4, 2, zero=1, replicate=2)
    assert [members(plan, axis) for axis in AXES] == [[0, 8], [0, 4], [0, 2], [0], [0, 1]]
    assert place_of(plan, 11) == (1, 0, 1, 0, 1)


def test_a_rank_that_is_not_there():
    with pytest.raises(ValueError, match=r"pp\(2\) x dp\(1\) x tp\(4\) = 8 ranks, 0 to 7, but rank 8 was requested"):
        place_of(Plan(2, 1, 4), 8)
