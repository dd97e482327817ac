"""The bars are the passes, and the line has the numbers of the analysis."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgba
from visuals.drawn import lightness

from tinydist import visuals
from tinydist.pipeline_parallel import Costs, analyze, make_schedule, with_messages
from tinydist.visuals.schedule import BUBBLE, KINDS, color_of


def boxes(axes):
    """(left, bottom, right, top, color) of what is drawn."""
    for collection in axes.collections:
        colors = collection.get_facecolor()
        for number, path in enumerate(collection.get_paths()):
            low, high = path.vertices.min(axis=0), path.vertices.max(axis=0)
            yield *low, *high, tuple(colors[number % len(colors)])


def bars(axes, bubble=False):
    """(row, from, to, color) of each pass, or of each part of the bubble."""
    outlined = to_rgba(BUBBLE["facecolor"])
    found = [box for box in boxes(axes) if (box[-1] == outlined) == bubble]
    return sorted((round((low + high) / 2), left, right, color) for left, low, right, high, color in found)


def expected(analysis):
    for rank, program in enumerate(analysis.schedule.programs):
        stages = analysis.schedule.stages_of(rank)
        for each, start, end in zip(program, analysis.start[rank], analysis.end[rank]):
            for part in each.parts:
                if part.kind in KINDS:
                    late = stages.index(part.stage) / max(1, len(stages) - 1)
                    yield rank, start, end, to_rgba(color_of(part.kind, late))


@pytest.mark.parametrize("name", ["GPipe", "1F1B", "interleaved 1F1B", "ZB-V", "DualPipeV"])
def test_each_bar_is_a_pass(name):
    analysis = analyze(with_messages(make_schedule(name, 4, 8)), Costs(2, 1.5, 1, message=0.5))
    drawn, passes = bars(visuals.schedule(analysis).axes[-1]), sorted(expected(analysis))
    assert len(drawn) == len(passes)
    np.testing.assert_allclose([bar[:3] for bar in drawn], [each[:3] for each in passes])
    np.testing.assert_allclose([bar[3] for bar in drawn], [each[3] for each in passes])


@pytest.mark.parametrize("name", ["1F1B", "ZB-V", "DualPipeV"])
def test_what_is_outlined_is_the_bubble(name):
    analysis = analyze(make_schedule(name, 4, 8))
    [axes] = visuals.schedule(analysis).axes[-1:]
    found = [0.0] * 4
    for rank, start, end, _ in bars(axes, bubble=True):
        found[rank] += end - start
    np.testing.assert_allclose(found, analysis.idle)
    assert axes.get_title(loc="left").endswith(f"{100 * analysis.bubble:.0f} % bubble")


def numbers(axes):
    return sorted(text.get_text() for text in axes.texts)


def test_numbers_of_microbatches():
    [axes] = visuals.schedule(analyze(make_schedule("1F1B", 2, 3))).axes
    assert numbers(axes) == sorted(str(number) for number in [0, 1, 2] * 4)


@pytest.mark.parametrize("microbatches, written", [(12, 2 * 12), (64, 0)])
def test_every_number_or_none(microbatches, written):
    [axes] = visuals.schedule(analyze(make_schedule("GPipe", 1, microbatches))).axes
    assert len(numbers(axes)) == written


def test_numbers_stand_on_plain_colors():
    [axes] = visuals.schedule(analyze(make_schedule("ZB-H1", 4, 8))).axes
    assert not any(collection.get_hatch() for collection in axes.collections)
    assert len(numbers(axes)) == 3 * 4 * 8


@pytest.mark.parametrize(
    "name, way",
    [
        ("interleaved 1F1B", [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]),
        ("ZB-V", [(0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (1, 0)]),
    ],
)
def test_the_placement_is_drawn_first_a_loop_or_a_v(name, way):
    placement, _ = visuals.schedule(analyze(make_schedule(name, 3, 6))).axes
    assert [tuple(point) for point in placement.lines[0].get_xydata()] == way
    at = {text.get_text(): text.get_position() for text in placement.texts}
    assert [at[str(stage)] for stage in range(6)] == [pytest.approx(place) for place in way]


def test_one_stage_a_rank_needs_no_drawing_of_its_place():
    assert len(visuals.schedule(analyze(make_schedule("1F1B", 4, 8))).axes) == 1


def test_kinds_differ_in_grey_for_all_stages_of_a_rank():
    greys = [{lightness(color_of(kind, late)) for late in (0, 1)} for kind in "BFW"]
    for darker, lighter in pairwise(greys):
        assert max(darker) + 0.05 < min(lighter)


def test_the_line(said):
    visuals.schedule(analyze(make_schedule("1F1B", 4, 8)))
    assert said() == (
        "1F1B, 4 ranks, 8 microbatches: 33 s, 27 % of it idle; a rank holds at most 1 to 4 activations; 48 messages\n"
    )


def test_several_in_one_scale_of_time(said):
    found = {name: analyze(make_schedule(name, 3, 4)) for name in ("GPipe", "ZB-H1")}
    figure = visuals.schedules({"mine": found["GPipe"], "other": found["ZB-H1"]})
    assert [axes.get_title(loc="left").split(":")[0] for axes in figure.axes] == ["mine", "other"]
    assert {axes.get_xlim() for axes in figure.axes} == {(0.0, found["GPipe"].makespan)}
    assert [len(bars(axes)) for axes in figure.axes] == [3 * 4 * 2, 3 * 4 * 3]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["forward", "backward or backward for inputs", "backward for weights", "bubble"]
    assert [line.split(",")[0] for line in said().splitlines()] == ["mine", "other"]


def test_more_passes_than_can_be_told_apart_have_no_lines_between_them():
    [axes] = visuals.schedule(analyze(make_schedule("1F1B", 8, 80))).axes
    assert len(bars(axes)) == 2 * 8 * 80 and not axes.texts
    assert {width for collection in axes.collections for width in collection.get_linewidths()} == {0}


def test_stages_have_the_colors_of_their_passes():
    placement, _ = visuals.schedule(analyze(make_schedule("interleaved 1F1B", 3, 6))).axes
    [stages] = placement.collections
    assert {to_hex(color) for color in stages.get_facecolors()} == {to_hex(color_of("F", late)) for late in (0, 1)}
