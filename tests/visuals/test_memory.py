"""The stack is the ledger's, and its peak is marked."""

import pytest
from visuals.some_runs import run_of

import tinydist
from tinydist import visuals
from tinydist.visuals.words import bytes_text


@pytest.mark.parametrize("name", ["star", "ring", "overlap", "training"])
def test_the_top_of_the_stack_is_the_peak(name):
    run = run_of(name)
    axes = visuals.memory(run).axes[0]
    top = max(path.vertices[:, 1].max() for stack in axes.collections for path in stack.get_paths())
    line, mark = axes.lines
    assert top == line.get_ydata()[0] == mark.get_ydata()[0] == run.memory[0].peak


def test_the_make_up_of_the_peak_is_told(capsys):
    run = run_of("training")
    figure = visuals.memory(run, rank=1)
    held, line = run.memory[1], capsys.readouterr().out
    legend = figure.axes[0].get_legend()
    assert line.startswith(f"rank 1 holds at most {bytes_text(held.peak)}, at ")
    assert legend.get_title().get_text() == f"▼ at the peak: {bytes_text(held.peak)}"
    parts = {f"{purpose} {bytes_text(nbytes)}" for purpose, nbytes in held.at_peak.items()}
    assert {text.get_text() for text in legend.get_texts()} == parts
    assert all(part in line for part in parts)


def test_the_end_of_the_run_is_drawn():
    run = run_of("training")
    *_, (_, last) = run.memory[0].over_time()
    *_, top = visuals.memory(run).axes[0].collections
    vertices = top.get_paths()[0].vertices
    assert sum(last.values()) in vertices[vertices[:, 0] == vertices[:, 0].max(), 1]


def test_lines_are_as_high_as_they_say():
    axes = visuals.memory(run_of("star"), lines={"one tensor": 400, "two": 800}).axes[0]
    assert [line.get_ydata()[0] for line in axes.lines[2:]] == [400, 800]
    assert [text.get_text() for text in axes.texts] == ["one tensor", "two"]


def test_a_rank_that_is_not_there():
    with pytest.raises(ValueError, match="the run has ranks 0 to 3, but rank 4 was asked for"):
        visuals.memory(run_of("star"), rank=4)


def test_a_rank_that_held_nothing():
    with pytest.raises(ValueError, match="rank 0 held nothing, or was not run"):
        visuals.memory(tinydist.launch(lambda: None, 1))
