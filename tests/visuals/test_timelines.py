"""A row for each run, each counted from its own start, on the axis of the longest."""

import numpy as np
import pytest
from visuals.some_runs import run_of
from visuals.test_timeline import bars, spans

from tinydist import visuals
from tinydist.visuals import palette


def transfers(name, rank, start, row):
    found = spans(run_of(name).trace, lambda event: event.rank == rank and event.stream != "compute")
    return [(row, max(a, start) - start, b - start) for _, a, b in found if b > start]


def test_each_run_is_drawn_from_its_own_start():
    star, overlap = run_of("star"), run_of("overlap")
    start = star.seconds / 3
    figure = visuals.timelines({"star": (star, start), "overlap": (overlap, 0.0)}, rank=2)
    expected = transfers("star", 2, start, 0) + transfers("overlap", 2, 0.0, 1)
    np.testing.assert_allclose(bars(figure, palette.COMMUNICATION), expected, atol=1e-12)
    assert figure.axes[0].get_xlim() == (0.0, max(star.seconds - start, overlap.seconds))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["star", "overlap"]


def test_the_lines_have_each_runs_own_share(capsys):
    overlap = run_of("overlap")
    visuals.timelines({"all": (overlap, 0.0), "half": (overlap, overlap.seconds / 2)})
    visuals.timeline(overlap, ranks=[0], start=overlap.seconds / 2)
    whole, half, alone = capsys.readouterr().out.splitlines()
    assert whole.startswith("all, ") and half.startswith("half, ")
    assert half.split(": ")[1] == alone.split(": ")[1] != whole.split(": ")[1]


def test_a_start_after_the_end_is_named():
    with pytest.raises(ValueError, match=r"'star' took .* us, nothing to draw from 1\.00 s on"):
        visuals.timelines({"star": (run_of("star"), 1.0)})
