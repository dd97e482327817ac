"""The bars are the passes, a summary keeps their time, and the line has the numbers of the analysis."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb, to_rgba

from tinydist import visuals
from tinydist.pipeline_parallel import Costs, analyze, make_schedule, with_messages
from tinydist.visuals.schedule import KINDS, colors, covered


def bars(figure):
    """(row, from, to, color) of each bar."""
    found = []
    for bar in figure.axes[0].patches:
        left, low = bar.get_xy()
        row = round(low + bar.get_height() / 2)
        found.append((row, left, left + bar.get_width(), bar.get_facecolor()))
    return found


def expected(analysis):
    for rank, program in enumerate(analysis.schedule.programs):
        stages = analysis.schedule.stages_of(rank)
        for each, start, end in zip(program, analysis.start[rank], analysis.end[rank]):
            for part in each.parts:
                if part.kind in KINDS:
                    paler = 0.6 * stages.index(part.stage) / len(stages)
                    color = np.array(to_rgba(KINDS[part.kind][1]["facecolor"]))
                    yield rank, start, end, tuple(paler + (1 - paler) * color)


@pytest.mark.parametrize("name", ["GPipe", "1F1B", "interleaved 1F1B", "ZB-V", "DualPipeV"])
def test_each_bar_is_a_pass(name):
    analysis = analyze(with_messages(make_schedule(name, 4, 8)), Costs(2, 1.5, 1, message=0.5))
    drawn, passes = sorted(bars(visuals.schedule(analysis))), sorted(expected(analysis))
    assert len(drawn) == len(passes)
    np.testing.assert_allclose([bar[:3] for bar in drawn], [each[:3] for each in passes])
    np.testing.assert_allclose([bar[3] for bar in drawn], [each[3] for each in passes])


def test_numbers_of_microbatches():
    figure = visuals.schedule(analyze(make_schedule("1F1B", 2, 3)))
    texts = sorted(text.get_text() for text in figure.axes[0].texts)
    assert texts == sorted(str(number) for number in [0, 1, 2] * 4)


def test_no_number_without_room_for_its_digits():
    """33 s: a forward has room for 0 to 9, and a backward for two digits."""
    texts = [text.get_text() for text in visuals.schedule(analyze(make_schedule("GPipe", 1, 14))).axes[0].texts]
    assert sorted(texts, key=int) == [str(number) for number in [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]] + [
        *["7", "7", "8", "8", "9", "9", "10", "11", "12", "13"]
    ]


def test_hatches_leave_room_for_the_number():
    axes = visuals.schedule(analyze(make_schedule("ZB-H1", 1, 2))).axes[0]
    backs = [each.get_paths() for each in axes.collections]  # of I, of W
    spans = [sorted((path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in paths) for paths in backs]
    middles = [text.get_position()[0] for text in axes.texts]
    assert [len(each) for each in spans] == [4, 4]
    assert not any(start < middle < end for each in spans for start, end in each for middle in middles)


def test_the_line(capsys):
    visuals.schedule(analyze(make_schedule("1F1B", 4, 8)))
    assert capsys.readouterr().out == (
        "1F1B, 4 ranks, 8 microbatches: 33 s, 27 % of it idle; a rank holds at most 1 to 4 activations; 48 messages\n"
    )


def test_several_in_one_scale_of_time(capsys):
    found = {name: analyze(make_schedule(name, 3, 4)) for name in ("GPipe", "ZB-H1")}
    figure = visuals.schedules({"mine": found["GPipe"], "other": found["ZB-H1"]})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["mine", "other"]
    assert {axes.get_xlim() for axes in figure.axes} == {(0.0, found["GPipe"].makespan)}
    assert [len(axes.patches) for axes in figure.axes] == [3 * 4 * 2, 3 * 4 * 3]
    names = [text.get_text() for axes in figure.axes if axes.get_legend() for text in axes.get_legend().get_texts()]
    assert names == ["forward", "backward", "backward, input", "backward, weights"]
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == ["mine", "other"]


def test_several_that_are_too_large():
    with pytest.raises(ValueError, match="schedules: 1200 passes can be told apart, and large has 16384"):
        visuals.schedules({"large": analyze(make_schedule("1F1B", 32, 256))})


def test_many_passes_are_summarized():
    analysis = analyze(make_schedule("1F1B", 32, 256))
    figure = visuals.schedule(analysis)
    assert len(figure.axes) == 2 and not figure.axes[0].patches
    (begin, _), (_, end) = (axes.get_xlim() for axes in figure.axes)
    assert begin == 0 and end == analysis.makespan
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()][:3] == ["rank 0", "rank 2", "rank 4"]


def test_a_summary_keeps_the_time():
    """Of each rank: what is missing to white is what its passes took."""
    analysis = analyze(make_schedule("ZB-H1", 4, 8))
    edges = np.linspace(0, analysis.makespan, 8)
    image = colors(analysis, edges)
    for rank, program in enumerate(analysis.schedule.programs):
        spent = sum(
            (end - start) * (1 - np.array(to_rgb(KINDS[each.kind][1]["facecolor"])))
            for each, start, end in zip(program, analysis.start[rank], analysis.end[rank])
        )
        np.testing.assert_allclose((1 - image[rank]).sum(axis=0) * (edges[1] - edges[0]), spent)


def test_covered():
    shares = covered(np.array([1.0, 4.0]), np.array([3.0, 5.0]), np.array([0.0, 2.0, 4.0, 8.0]))
    np.testing.assert_allclose(shares, [0.5, 0.5, 0.25])
    assert covered(np.zeros(0), np.zeros(0), np.array([0.0, 1.0])).tolist() == [0]
