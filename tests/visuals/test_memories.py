"""The highest point of each line is the ledger's peak."""

import pytest
from visuals.some_runs import run_of

import tinydist
from tinydist import visuals
from tinydist.visuals.words import bytes_text

RUNS = {"alone": run_of("alone"), "two ranks": run_of("training")}


def test_each_line_rises_to_its_peak(capsys):
    lines = visuals.memories(RUNS).axes[0].lines
    for (name, run), line in zip(RUNS.items(), lines, strict=True):
        assert line.get_label() == name and max(line.get_ydata()) == run.memory[0].peak
        assert line.get_xdata()[-1] == run.seconds
    peaks = ", ".join(f"{name} {bytes_text(run.memory[0].peak)}" for name, run in RUNS.items())
    assert capsys.readouterr().out == f"rank 0 at most: {peaks}\n"


def test_of_one_purpose():
    line = visuals.memories(RUNS, purposes=["gradients"]).axes[0].lines[1]
    assert max(line.get_ydata()) == max(state["gradients"] for _, state in RUNS["two ranks"].memory[0].over_time())


def test_ranks_that_held_nothing():
    with pytest.raises(ValueError, match="in none of the runs did rank 0 hold anything"):
        visuals.memories({"idle": tinydist.launch(lambda: None, 1)})
