"""Whoever is killed while saving leaves a checkpoint: the one before, or the new one."""

import json
import signal
from pathlib import Path

import pytest
from warm import told_by

HERE = Path(__file__).parent


def killed(times, seed, folder):
    said = told_by(HERE / "killed_saves.py", folder, times, seed)
    return [json.loads(line) for line in said.splitlines()]


@pytest.mark.parametrize("times", [4, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_a_save_that_is_killed_leaves_a_checkpoint(times, tmp_path):
    *kills, end = killed(times, 0, tmp_path)
    assert len(kills) == times
    for kill in kills:
        assert kill["died"] == (signal.SIGKILL if "line" in kill else signal.SIGXFSZ), kill
        assert kill["after"] in (kill["before"], 3 - kill["before"]), kill
        assert "line" in kill or kill["after"] == kill["before"], "half a file was taken for a whole one"
    assert end == {"left": 2, "found": 1}, "the index and the one save; what the killed ones left is gone"
