"""A row for each way to take a step: its time and its memory."""

from itertools import combinations

import pytest
from visuals.drawn import assert_can_be_read, written

from tinydist import visuals

MEMORY = {"parameters": 4e9, "optimizer states": 8e9, "activations": 20e9}
STEPS = {
    "fp32": {"seconds": {"passes": 1.5, "optimizer": 0.02}, "memory": MEMORY},
    "bf16": {"seconds": {"passes": 0.12, "optimizer": 0.03}, "memory": MEMORY | {"activations": 10e9}},
}


def test_bars_are_as_long_as_what_they_count_and_cut_where_the_axis_ends(capsys):
    figure = visuals.step_costs(STEPS, cut=0.3)
    time, memory = figure.axes
    assert [round(bar.get_width(), 3) for bar in time.patches] == [300, 0, 120, 30]
    assert [round(bar.get_width(), 3) for bar in memory.patches] == [4, 8, 20, 4, 8, 10]
    assert {"→ 1,520", "150", "32", "22"} <= set(written(figure))
    assert capsys.readouterr().out == "fp32 1,520 ms, 32 GB; bf16 150 ms, 22 GB\n"


@pytest.mark.parametrize("count", [1, 6])
def test_it_can_be_read(count):
    assert_can_be_read(visuals.step_costs({f"way {n} of it all": STEPS["fp32"] for n in range(count)}, cut=0.3))
    assert_can_be_read(visuals.step_costs({f"way {n}": STEPS["bf16"] for n in range(count)}))


def test_no_part_of_the_time_looks_like_a_purpose_of_memory():
    figure = visuals.step_costs(
        {"a": {"seconds": {"passes": 1.0, "optimizer": 1.0}, "memory": MEMORY | {"other": 1e9}}}
    )
    time, memory = ([bar.get_facecolor() for bar in axes.patches] for axes in figure.axes)
    greys = [sum(color[:3]) / 3 for color in (*time, memory[-1])]
    assert not {*time} & {*memory} and min(abs(a - b) for a, b in combinations(greys, 2)) > 0.25


def test_parts_that_can_be_told_apart():
    three = {"a": {"seconds": dict.fromkeys("abc", 1.0), "memory": MEMORY}}
    with pytest.raises(ValueError, match=r"^step_costs: at most 2 parts of the time are supported, got 3: "):
        visuals.step_costs(three)
