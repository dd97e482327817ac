"""The schedules of the papers' figures, and what cannot be had."""

import pytest

from tinydist.pipeline_parallel import SCHEDULES, contiguous, looped, make_schedule, v_shape


def test_one_f_one_b_of_the_figure():
    """As in Narayanan et al. 2021, figure 4, with fewer microbatches."""
    assert str(make_schedule("1F1B", 4, 4)).splitlines() == [
        "rank 0   0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3",
        "rank 1   1F0 1F1 1F2 1B0 1F3 1B1 1B2 1B3",
        "rank 2   2F0 2F1 2B0 2F2 2B1 2F3 2B2 2B3",
        "rank 3   3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3",
    ]


def test_zero_bubbles_of_the_figures():
    """Qi et al. 2024, figure 3: how much later W comes than I."""
    assert str(make_schedule("ZB-H1", 2, 3)).splitlines() == [
        "rank 0   0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2",
        "rank 1   1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2",
    ]
    assert str(make_schedule("ZB-H2", 2, 3)).splitlines() == [
        "rank 0   0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2",
        "rank 1   1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2",
    ]


def test_interleaved_by_hand():
    assert str(make_schedule("interleaved 1F1B", 2, 2)).splitlines() == [
        "rank 0   0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1",
        "rank 1   1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1",
    ]


def test_in_a_v_the_first_rank_has_both_ends():
    schedule = make_schedule("ZB-V", 4, 8)
    assert [schedule.stages_of(rank) for rank in range(4)] == [[0, 7], [1, 6], [2, 5], [3, 4]]
    assert make_schedule("looped BFS", 4, 8, 3).stages_of(1) == [1, 5, 9]


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_same_work_in_all(name):
    schedule = make_schedule(name, 4, 8)
    forwards = {(p.stage, p.microbatch) for rank in range(4) for p in schedule.passes(rank) if p.kind == "F"}
    assert forwards == {(stage, microbatch) for stage in range(schedule.stages) for microbatch in range(8)}
    assert repr(schedule) == f"<schedule {name}: 4 ranks, {schedule.stages} stages, 8 microbatches>"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("2F2B", 4, 8), "name must be one of naive, GPipe, 1F1B, interleaved 1F1B, .* got '2F2B'"),
        (("1F1B", 0, 8), "1F1B: it needs 1 or more ranks and microbatches, got 0 and 8"),
        (("GPipe", 4, 0), "GPipe: it needs 1 or more ranks and microbatches, got 4 and 0"),
        (("1F1B", 4, 8, 2), "1F1B: a rank has 1 stage, got 2"),
        (("ZB-V", 4, 8, 3), "ZB-V: a rank has 2 stages, got 3"),
        (("looped BFS", 4, 8, 0), "looped BFS: a rank has 1 or more stages, got 0"),
        (("interleaved 1F1B", 4, 9), r"M // P, but 9 // 4 = 2 does not divide 9"),
    ],
)
def test_impossible(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_schedule(*arguments)


def test_placements_are_those_of_the_schedules():
    names = {"1F1B": contiguous(4), "interleaved 1F1B": looped(4), "ZB-V": v_shape(4)}
    for name, placement in names.items():
        schedule = make_schedule(name, 4, 8)
        assert tuple(schedule.rank_of[stage] for stage in range(schedule.stages)) == placement
    assert looped(2, 3) == (0, 1, 0, 1, 0, 1)
