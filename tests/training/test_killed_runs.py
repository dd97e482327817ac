"""Whoever is killed while training goes on from the last whole checkpoint, as if nothing had been."""

import json
import signal
from pathlib import Path

import pytest
from training.killed_runs import EVERY, STEPS
from warm import told_by

HERE = Path(__file__).parent


def killed(times, seed, folder):
    said = told_by(HERE / "killed_runs.py", folder, times, seed)
    return [json.loads(line) for line in said.splitlines()]


@pytest.mark.parametrize("times", [2, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_runs_that_are_killed_go_on_to_the_same_losses(times, tmp_path):
    kills = killed(times, 0, tmp_path)
    assert len(kills) == times
    for kill in kills:
        assert kill["died"] == signal.SIGKILL, kill
        assert kill["left"] % EVERY == 0 and kill["left"] <= kill["at"], (
            "only what was whole, and of a step that was taken"
        )
        assert kill["before"] and kill["again"] == 0.0, "on the same mesh to the last bit"
        assert kill["elsewhere"] is None or kill["elsewhere"] < 1e-5, "on another one"
        assert kill["end"] == STEPS - STEPS % EVERY
