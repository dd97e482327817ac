"""Groups found by their tags, as functional collectives look for them."""

from functools import partial

import pytest
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import tinydist


@pytest.mark.parametrize("tag, found_as", [("mine", "user:mine"), ("mine", "mine"), ("mine", ""), (None, "ptd:1")])
def test_a_group_is_found_by_its_tag_and_ranks(tag, found_as):
    def program():
        group = c10d._new_group_with_tag([0, 1], pg_tag=tag)
        if dist.get_rank() == 2:
            return group is dist.GroupMember.NON_GROUP_MEMBER
        others = c10d._find_pg_by_ranks_and_tag(found_as, [0, 2]), c10d._find_pg_by_ranks_and_tag("other", [0, 1])
        return c10d._find_pg_by_ranks_and_tag(found_as, [0, 1]) is group and others == (None, None)

    assert tinydist.launch(program, 3).results == [True] * 3


def found_without_a_tag():
    find = partial(c10d._find_pg_by_ranks_and_tag, "")
    world = find([0, 1]) is dist.group.WORLD
    dist.new_group([1])
    other = find([1]) and find([1]).size()
    dist.destroy_process_group()
    return world, other, c10d._world.tags_to_pg


@pytest.mark.parametrize("backend", ["simulated", "gloo"])
def test_without_a_tag_every_group_is_found(backend):
    run = tinydist.launch(found_without_a_tag, 2, backend=backend)
    assert run.results == [(True, None, {}), (True, 1, {})]


def test_the_same_tag_and_ranks_are_the_same_group():
    def program():
        first, second = (c10d._new_group_with_tag([0, 1], pg_tag="mine") for _ in range(2))
        other = c10d._new_group_with_tag([0, 1], pg_tag="other")
        return first is second, first is other, c10d._get_group_tag(first)

    assert tinydist.launch(program, 2).results == [(True, False, "mine")] * 2
