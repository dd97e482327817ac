"""Stages on ranks, as the papers draw them."""

from tinydist.pipeline_parallel import make_schedule
from tinydist.pipeline_parallel.placement import in_a_loop, in_a_v, one_each


def test_placements_are_those_of_the_schedules():
    names = {"1F1B": one_each(4), "interleaved 1F1B": in_a_loop(4), "ZB-V": in_a_v(4)}
    for name, placement in names.items():
        schedule = make_schedule(name, 4, 8)
        assert tuple(schedule.rank_of[stage] for stage in range(schedule.stages)) == placement
    assert in_a_loop(2, 3) == (0, 1, 0, 1, 0, 1)
