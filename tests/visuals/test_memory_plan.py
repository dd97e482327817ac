"""Boxes of buffers: from step to step, at their offsets."""

import pytest
from visuals.drawn import assert_can_be_read, written

from tinydist.visuals.memory_plan import memory_plan

APART = [(0, 1, 0, 4000), (1, 3, 4000, 2000), (2, 3, 6000, 4000)]
SHARED = [(0, 1, 0, 4000), (1, 3, 4000, 2000), (2, 3, 0, 4000)]


def test_the_end_of_each_plan_is_said_and_written(said):
    figure = memory_plan({"apart": APART, "shared": SHARED})
    assert said() == "apart: 3 buffers in 10.0 kB; shared: 3 buffers in 6.00 kB\n"
    assert {"apart", "shared", "10.0 kB", "6.00 kB", "offset (kB)"} <= set(written(figure))
    assert_can_be_read(figure)


def test_boxes_stand_where_the_plan_says():
    (axes,) = memory_plan({"shared": SHARED}).axes
    found = [path.get_extents().bounds for path in axes.collections[0].get_paths()]
    assert found == [(0, 0, 2, 4000), (1, 4000, 3, 2000), (2, 0, 2, 4000)]


@pytest.mark.parametrize("count", [1, 60])
def test_few_and_many_can_be_read(count):
    plan = [(at, at + 3, 512 * at, 512) for at in range(count)]
    assert_can_be_read(memory_plan({"one": plan}))
    assert_can_be_read(memory_plan({"one": plan, "other": plan, "third": plan}))


def test_what_is_no_box_is_named():
    rule = r"^memory_plan: plans must be a non-empty dict.* got \{'one': \[\(0, 1, 2\)\]\}$"
    with pytest.raises(ValueError, match=rule):
        memory_plan({"one": [(0, 1, 2)]})
