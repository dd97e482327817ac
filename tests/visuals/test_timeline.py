"""The bars are the events, and the line's numbers are the trace's."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from visuals.some_runs import launched, run_of

from tinydist import visuals
from tinydist.visuals import palette
from tinydist.visuals.timeline import covered, draw_bars, lanes, merged


def bars(figure, look):
    """(row, from, to) of what is drawn in the color of ``look``."""
    found = []
    for collection in figure.axes[0].collections:
        if len(collection.get_paths()) and tuple(collection.get_facecolor()[0]) == to_rgba(look["facecolor"]):
            for path in collection.get_paths():
                (left, low), (right, high) = path.vertices.min(axis=0), path.vertices.max(axis=0)
                found.append((round((low + high) / 2), left, right))
    return sorted(found)


def spans(trace, chosen):
    return sorted((event.rank, event.start, event.end) for event in trace.events if chosen(event))


@pytest.mark.parametrize("name", ["star", "ring", "overlap", "two nodes"])
def test_each_bar_is_an_event(name):
    run = run_of(name)
    figure = visuals.timeline(run)
    transfers = spans(run.trace, lambda event: event.stream != "compute")
    waits = spans(run.trace, lambda event: event.name == "wait")
    np.testing.assert_allclose(bars(figure, palette.COMMUNICATION), transfers)
    np.testing.assert_allclose(bars(figure, palette.WAITING), waits)


@pytest.mark.parametrize("name", ["star", "ring", "overlap", "training"])
def test_compute_is_drawn_whole(name):
    run = run_of(name)
    drawn = sum(right - left for _, left, right in bars(visuals.timeline(run), palette.COMPUTE))
    events = [event for event in run.trace.events if event.stream == "compute" and event.name != "wait"]
    assert drawn == pytest.approx(sum(event.end - event.start for event in events))


def test_many_operators_are_few_bars():
    run = run_of("training")
    assert len(run.trace.events) > 1000
    assert len(bars(visuals.timeline(run), palette.COMPUTE)) < 200


def test_the_line_has_the_numbers_of_the_trace(capsys):
    run = run_of("star")
    visuals.timeline(run)
    whole = 4 * run.seconds
    waiting = sum(event.end - event.start for event in run.trace.events if event.name == "wait")
    line = capsys.readouterr().out
    assert line.startswith(f"4 ranks, {run.seconds * 1e6:.0f} us: compute ")
    assert f"waiting {100 * waiting / whole:.0f} %, communication" in line
    assert line.endswith("(0 % of it behind compute)\n")


def test_overlap_is_what_was_not_waited_for(capsys):
    run = run_of("overlap")
    visuals.timeline(run)
    transfers = sum(event.end - event.start for event in run.trace.of(0) if event.stream != "compute")
    waits = sum(event.end - event.start for event in run.trace.of(0, "compute") if event.name == "wait")
    assert f"({100 * (1 - waits / transfers):.0f} % of it behind compute)" in capsys.readouterr().out


def test_some_ranks_and_a_part_of_the_time(capsys):
    run = run_of("ring")
    figure = visuals.timeline(run, ranks=[1, 5], start=50e-6, end=100e-6)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["rank 1", "rank 5"]
    assert figure.axes[0].get_xlim() == (50e-6, 100e-6)
    assert capsys.readouterr().out.startswith("2 of 8 ranks, 50.0 us to 100 us: ")


def test_sixteen_ranks_at_most(capsys):
    assert len(visuals.timeline(run_of("many ranks")).axes[0].get_yticks()) == 16
    assert capsys.readouterr().out.startswith("16 of 20 ranks, ")


def test_the_unit_of_time_follows_the_run():
    def unit(name):
        return visuals.timeline(run_of(name)).axes[0].get_xlabel()

    assert (unit("star"), unit("overlap")) == ("virtual time (us)", "virtual time (ms)")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"ranks": [4]}, r"ranks must be some of 0 to 3, got \[4\]"),
        ({"ranks": []}, r"ranks must be some of 0 to 3, got \[\]"),
        ({"start": 1.0}, "nothing to draw from 1.00 s to"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        visuals.timeline(run_of("star"), **options)


def test_narrow_bars_that_touch_are_merged():
    assert merged([(0, 1), (1, 2), (2, 12), (12, 13), (15, 16)], narrow=1) == [(0, 2), (2, 12), (12, 13), (15, 16)]


def test_a_narrow_wait_is_told_from_nothing_by_its_edge():
    figure, axes = plt.subplots()
    draw_bars(axes, [(0, 1)], 0, 1, 100, palette.WAITING)
    _, slim = axes.collections
    assert len(slim.get_paths()) == 1
    assert tuple(slim.get_edgecolor()[0]) == to_rgba(palette.WAITING["edgecolor"]) != to_rgba("white")
    plt.close(figure)


def test_bars_at_the_same_time_are_in_lanes_of_their_own():
    assert lanes([(0, 2), (1, 3), (2, 4)]) == [([(0, 2), (2, 4)], 2), ([(1, 3)], 2)]
    assert covered([(0, 2), (1, 3), (5, 6)]) == 4


def test_a_run_shows_its_timeline_in_a_notebook(capsys):
    run = launched("star")
    data, _ = run._repr_mimebundle_()
    assert data["image/png"].startswith("iVBOR")
    assert capsys.readouterr().out.startswith("4 ranks, ")
    assert plt.get_fignums() == []
