"""A row for each run, each counted from its own beginning, and what it takes less than the longest."""

import numpy as np
import pytest
from visuals.drawn import assert_can_be_read, written
from visuals.named_runs import named_run
from visuals.some_runs import run_of
from visuals.test_timeline import bars

from tinydist import visuals
from tinydist.visuals import palette
from tinydist.visuals.scene import Scene
from tinydist.visuals.words import seconds_text


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


def test_the_lines_have_each_runs_own_share(capsys):
    overlap = run_of("overlap")
    visuals.timelines({"all": overlap, "half": (overlap, overlap.seconds / 2)})
    visuals.timeline(overlap, ranks=[0], since=overlap.seconds / 2)
    whole, half, alone = capsys.readouterr().out.splitlines()
    assert whole.startswith("all, ") and half.startswith("half, ")
    assert half.split(": ")[1] == alone.split(": ")[1] != whole.split(": ")[1]


def test_a_start_after_the_end_is_named():
    with pytest.raises(ValueError, match=r"timelines, 'star': nothing to draw from 1\.00 s to .* us"):
        visuals.timelines({"star": (run_of("star"), 1.0)})
