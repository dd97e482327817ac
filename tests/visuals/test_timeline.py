"""The bars are the blocks, names stand where there is room, and the line's numbers are the trace's."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
import torch.distributed as dist
from matplotlib.colors import to_rgba
from visuals.drawn import assert_can_be_read, texts, written
from visuals.named_runs import PROGRAMS as NAMED
from visuals.named_runs import named_run
from visuals.some_runs import launched, run_of

import tinydist
from tinydist import visuals
from tinydist.visuals import palette
from tinydist.visuals.formatting import seconds_text
from tinydist.visuals.scene import Scene, covered


def bars(figure, look, axes=0):
    """(from, to) of what is drawn in the color of ``look``, row after row."""
    found = []
    for collection in figure.axes[axes].collections:
        if len(collection.get_paths()) and tuple(collection.get_facecolor()[0]) == to_rgba(look["facecolor"]):
            for path in collection.get_paths():
                (left, top), (right, _) = path.vertices.min(axis=0), path.vertices.max(axis=0)
                found.append((round(top, 2), left, right))
    return [(left, right) for _, left, right in sorted(found)]


def blocks(run, kind, **options):
    rows = Scene("test", run.trace, **options).rows
    return [(block.start, block.end) for row in rows for block in getattr(row, kind)]


@pytest.mark.parametrize("name", ["star", "ring", "overlap", "two nodes", "training"])
def test_each_bar_is_a_block(name):
    run = run_of(name)
    figure = visuals.timeline(run)
    looks = {"communication": palette.COMMUNICATION, "waiting": palette.WAITING, "compute": palette.COMPUTE}
    for kind, look in looks.items():
        if name != "training":  # whose compute has several looks
            np.testing.assert_allclose(sorted(bars(figure, look)), sorted(blocks(run, kind)), atol=1e-12)
    assert_can_be_read(figure)


@pytest.mark.parametrize("name", NAMED)
def test_no_text_overlaps_another_and_none_is_small(name):
    assert_can_be_read(visuals.timeline(named_run(name)))
    assert_can_be_read(visuals.timeline(named_run(name), ranks=[1], since="backward"))


@pytest.mark.parametrize("name", ["ddp", "torch ddp", "fsdp", "zero 2", "zero 3"])
def test_names_are_written_where_there_is_room(name):
    shown = written(visuals.timeline(named_run(name), ranks=[0], since="B4", until="B1"))
    assert {"B4", "B3", "B2", "B1"} <= set(shown)


def test_a_name_stands_in_its_bar():
    run = named_run("zero 2")
    figure = visuals.timeline(run, ranks=[0], since="B4", until="B1")
    (text,) = [text for text, _ in texts(figure) if text.get_text() == "B2"]
    (block,) = Scene("test", run.trace, [0]).rows[0].named("B2")[:1]
    start = Scene("test", run.trace, [0], since="B4").since
    assert text.get_position()[0] == pytest.approx((block.start + block.end) / 2 - start)


def test_a_mark_is_a_bracket_over_what_it_names():
    run = named_run("fsdp")
    figure = visuals.timeline(run, ranks=[0], since=("F1", 1), mark=[("Adam", "the step"), ("waiting", "lost")])
    scene = Scene("test", run.trace, [0], since=("F1", 1))
    step, longest = scene.rows[0].named("Adam")[0], max(scene.rows[0].waiting, key=lambda block: block.length)
    spans = [line.get_xdata()[[0, -1]] + scene.since for line in map(with_array, figure.axes[0].lines)]
    np.testing.assert_allclose(spans, [(step.start, step.end), (longest.start, longest.end)])
    assert any(text.startswith("the step, ") for text in written(figure))


def test_all_waits_are_under_brackets_with_their_sum():
    run = named_run("fsdp")
    figure = visuals.timeline(run, ranks=[0], since=("F1", 1), mark=("all waits", "waiting"))
    waiting = Scene("test", run.trace, [0], since=("F1", 1)).rows[0].waiting
    (said,) = [text for text in written(figure) if text.startswith("waiting, ")]
    assert said == f"waiting, {seconds_text(covered(waiting))} in all"
    spans = [line.get_xdata() for line in map(with_array, figure.axes[0].lines)]
    assert len(spans) > 1 and sum(span[-1] - span[0] for span in spans) >= 0.9 * covered(waiting)
    assert_can_be_read(figure)


def with_array(line):
    line.set_xdata(np.asarray(line.get_xdata()))
    return line


def test_a_bracket_from_one_moment_to_another():
    figure = visuals.timeline(named_run("ddp"), ranks=[0], since="F1", until="B1", mark=(("B4", "B3"), "half"))
    assert any(text.startswith("half, ") for text in written(figure))
    assert_can_be_read(figure)


def test_many_operators_are_few_bars():
    run = run_of("training")
    assert len(run.trace.events) > 1000
    assert sum(map(len, (bars(visuals.timeline(run), look) for look in (palette.FORWARD, palette.BACKWARD)))) < 100


def test_the_line_has_the_numbers_of_the_trace(said):
    run = run_of("star")
    visuals.timeline(run)
    whole = 4 * run.seconds
    waiting = sum(event.end - event.start for event in run.trace.events if event.name == "wait")
    line = said()
    assert line.startswith(f"4 ranks, {run.seconds * 1e6:.0f} us: compute ")
    assert f"waiting {100 * waiting / whole:.0f} %, communication" in line
    assert line.endswith("(0 % of it behind compute)\n")


def test_without_compute_nothing_is_said_of_overlap(said):
    def swap():
        both = [
            dist.P2POp(dist.isend, torch.ones(1000), 1 - dist.get_rank()),
            dist.P2POp(dist.irecv, torch.empty(1000), 1 - dist.get_rank()),
        ]
        with tinydist.region("swap"):
            for work in dist.batch_isend_irecv(both):
                work.wait()

    visuals.timeline(tinydist.launch(swap, 2, backend="simulated").between("swap"))
    assert said().endswith(": no compute, only waiting for communication\n")


def test_overlap_is_what_was_not_waited_for(said):
    run = run_of("overlap")
    visuals.timeline(run)
    transfers = sum(event.end - event.start for event in run.trace.of(0) if event.stream != "compute")
    waits = sum(event.end - event.start for event in run.trace.of(0, "compute") if event.name == "wait")
    assert f"({100 * (1 - waits / transfers):.0f} % of it behind compute)" in said()


def test_some_ranks_and_a_part_of_the_time(said):
    figure = visuals.timeline(run_of("ring"), ranks=[1, 5], since=50e-6, until=100e-6)
    assert [text for text in written(figure) if text.startswith("rank")] == ["rank 1", "rank 5"]
    assert figure.axes[0].get_xlim() == (0, pytest.approx(50e-6))
    assert said().startswith("2 of 8 ranks, 50.0 us: ")


def test_sixteen_ranks_at_most(said):
    figure = visuals.timeline(run_of("many ranks"))
    assert sum(text.startswith("rank ") for text in written(figure)) == 16
    assert said().startswith("16 of 20 ranks, ")
    assert_can_be_read(figure)


def test_the_unit_of_time_follows_the_run():
    def unit(name):
        return visuals.timeline(run_of(name)).axes[0].get_xlabel()

    assert (unit("star"), unit("overlap")) == ("virtual time (us)", "virtual time (ms)")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"ranks": [4]}, r"ranks must be some of 0 to 3, got \[4\]"),
        ({"ranks": []}, r"ranks must be some of 0 to 3, got \[\]"),
        ({"since": 1.0}, "nothing to draw from 1.00 s to"),
        ({"mark": ("F1", "here")}, "nothing that is drawn has the name 'F1'"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        visuals.timeline(run_of("star"), **options)


def test_a_run_shows_its_timeline_in_a_notebook(said):
    run = launched("star")
    data, _ = run._repr_mimebundle_()
    assert data["image/png"]
    assert said().startswith("4 ranks, ")
    assert plt.get_fignums() == []


# Of several runs.


def transfers(name, rank, start):
    events = [event for event in run_of(name).trace.of(rank) if event.stream != "compute"]
    return [(max(event.start, start) - start, event.end - start) for event in events if event.end > start]


def test_each_run_is_drawn_from_its_own_start():
    star, overlap = run_of("star"), run_of("overlap")
    start = star.seconds / 3
    figure = visuals.timelines({"star": (star, start), "overlap": overlap}, rank=2)
    expected = transfers("star", 2, start) + transfers("overlap", 2, 0.0)
    np.testing.assert_allclose(sorted(bars(figure, palette.COMMUNICATION)), sorted(expected), atol=1e-12)
    assert figure.axes[0].get_xlim() == (0.0, max(star.seconds - start, overlap.seconds))
    assert {"star", "overlap"} <= set(written(figure))
    assert_can_be_read(figure)


def test_the_difference_is_bracketed():
    runs = {"DDP": (named_run("ddp"), ("F1", 1)), "fully_shard": (named_run("fsdp"), ("F1", 1))}
    figure = visuals.timelines(runs)
    ddp, fsdp = (run.trace for run, _ in runs.values())
    lengths = [Scene("test", trace, [0], since=("F1", 1)).seconds for trace in (ddp, fsdp)]
    assert f"{seconds_text(max(lengths) - min(lengths))} less" in " ".join(written(figure))
    (bracket,) = figure.axes[0].lines
    assert (min(bracket.get_xdata()), max(bracket.get_xdata())) == pytest.approx((min(lengths), max(lengths)))
    assert_can_be_read(figure)


def test_runs_of_one_length_have_no_bracket():
    figure = visuals.timelines({"one": run_of("star"), "the same": run_of("star")})
    assert not figure.axes[0].lines


def test_the_lines_have_each_runs_own_share(said):
    overlap = run_of("overlap")
    visuals.timelines({"all": overlap, "half": (overlap, overlap.seconds / 2)})
    visuals.timeline(overlap, ranks=[0], since=overlap.seconds / 2)
    whole, half, alone = said().splitlines()
    assert whole.startswith("all, ") and half.startswith("half, ")
    assert half.split(": ")[1] == alone.split(": ")[1] != whole.split(": ")[1]


def test_what_is_sent_along_an_axis_has_its_color(capsys):
    run = run_of("star")
    ranks = list(range(len(run.trace.memory)))
    runs = {"one": run, "other": run}
    figure = visuals.timelines(runs, rank={"one": 0, "other": 1}, along={"one": {"tp": [99], "dp": ranks}})
    sent = [Scene("test", run.trace, [rank]).rows[0].communication for rank in (0, 1)]
    by_color = [len(bars(figure, look)) for look in (palette.AXES[1], palette.GREYS["forward"])]
    assert by_color == list(map(len, sent)) and not bars(figure, palette.COMMUNICATION)
    assert "along dp " in capsys.readouterr().out
    assert_can_be_read(figure)


def test_a_start_after_the_end_is_named():
    with pytest.raises(ValueError, match=r"timelines, 'star': nothing to draw from 1\.00 s to .* us"):
        visuals.timelines({"star": (run_of("star"), 1.0)})
