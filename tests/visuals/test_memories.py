"""The highest point of each run is the ledger's peak, in one scale, above the names of what was computed."""

import pytest
import torch
from visuals.drawn import assert_can_be_read, written
from visuals.named_runs import named_run
from visuals.some_runs import run_of

import tinydist
from tinydist import visuals
from tinydist.visuals.words import bytes_text

RUNS = {"alone": (run_of("alone"), 0.0), "two ranks": (run_of("training"), 0.0)}


def tops(figure):
    """The highest point of each run."""
    areas = [axes for axes in figure.axes if axes.get_ylabel()]
    return [max(path.vertices[:, 1].max() for part in axes.collections for path in part.get_paths()) for axes in areas]


def test_each_rises_to_its_peak(capsys):
    figure = visuals.memories(RUNS)
    peaks = [run.memory[0].peak for run, _ in RUNS.values()]
    assert tops(figure) == peaks
    assert len({axes.get_ylim() for axes in figure.axes if axes.get_ylabel()}) == 1
    lines = capsys.readouterr().out.splitlines()
    for name, peak, line in zip(RUNS, peaks, lines, strict=True):
        assert line.startswith(f"rank 0, {name}: ") and line.endswith(f"{bytes_text(peak)} at the peak")
    assert_can_be_read(figure)


def test_of_one_purpose_under_the_names_of_the_passes():
    runs = {name: (named_run(name), "B4") for name in ("ddp", "zero 2")}
    figure = visuals.memories(runs, purposes=["gradients"])
    expected = [
        max(state["gradients"] for seconds, state in run.memory[0].over_time() if seconds >= run.trace.seconds / 9)
        for run, _ in runs.values()
    ]
    assert tops(figure) == expected
    assert {"ddp", "zero 2", "gradients", "B4", "Adam"} <= set(written(figure))
    assert any(text.startswith("virtual time since B4") for text in written(figure))
    assert_can_be_read(figure)


def test_ranks_that_held_nothing():
    def idle():
        torch.ones(3)

    with pytest.raises(ValueError, match="in none of the runs did rank 0 hold anything"):
        visuals.memories({"idle": tinydist.launch(idle, 1)}, purposes=["gradients"])
